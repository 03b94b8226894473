/* Follows what a client sends, and refuses messages before grpc-core gathers them. */
#include "guard.h"

#include <stdio.h>
#include <string.h>

/* No such flag exists. grpc-core answers a DATA frame that has it with RST_STREAM, skips the
   frame and whatever else the stream brings, and goes on with the connection's other streams. */
enum { REFUSED_FLAG = 0x40 };

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE_BYTES = sizeof PREFACE - 1 };

static size_t smaller(size_t one, size_t other) {
    return one < other ? one : other;
}

static void refuse(struct connection *connection, struct stream *stream, enum grpc_status status,
                   const char *message) {
    if (!outbound_refuse(connection, stream, status, message)) {
        connection->broken = true;
        return;
    }
    *connection->in.flags_at |= REFUSED_FLAG;
}

static uint32_t length_of(const struct stream *stream) {
    const uint8_t *prefix = stream->prefix;
    return (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 | (uint32_t)prefix[3] << 8 |
           prefix[4];
}

static bool condemned(const struct stream *stream) {
    return stream->prefix_length == PREFIX_BYTES && !stream->refused;
}

/* Refuse a condemned stream in the frame that is under way. */
static void execute(struct connection *connection, struct stream *stream) {
    if (stream->prefix[0] != 0) {
        /* grpc-core would decompress it without a bound. */
        refuse(connection, stream, UNIMPLEMENTED,
               "Compressed messages are not taken: send it without compression");
        return;
    }
    char message[80];
    snprintf(message, sizeof message, "Received message larger than max (%u vs. %u)",
             length_of(stream), guard_settings.max_message_bytes);
    refuse(connection, stream, RESOURCE_EXHAUSTED, message);
}

/* Judge a message by its complete prefix; `here` is how much of it this frame brings. */
static void judge(struct connection *connection, struct stream *stream, size_t here) {
    const uint32_t length = length_of(stream);
    if (stream->prefix[0] == 0 && length <= guard_settings.max_message_bytes) {
        stream->prefix_length = 0;
        stream->body_left = length;
    } else if (connection->in.flags_at != NULL) {
        execute(connection, stream);
    } else {
        /* Where the flags were read before, the stream's next frame can be marked, unless the
           message would be complete by then. */
        connection->broken = length <= here;
    }
}

static void take_messages(struct connection *connection, const uint8_t *bytes, size_t length) {
    struct stream *stream = streams_find(&connection->streams, connection->in.cursor.head.stream);
    while (stream != NULL && length > 0 && stream->prefix_length < PREFIX_BYTES) {
        if (stream->body_left > 0) {
            const size_t part = smaller(length, stream->body_left);
            stream->body_left -= (uint32_t)part;
            bytes += part;
            length -= part;
            continue;
        }
        stream->prefix[stream->prefix_length++] = *bytes++;
        length--;
        if (stream->prefix_length == PREFIX_BYTES) {
            judge(connection, stream, length + connection->in.data_left);
        }
    }
}

static void take_data(struct connection *connection, const uint8_t *bytes, size_t length) {
    struct inbound *in = &connection->in;
    if (in->pad_length_due) {
        const uint32_t padding = *bytes++;
        length--;
        in->pad_length_due = false;
        in->data_left = in->data_left > padding ? in->data_left - 1 - padding : 0;
    }
    const size_t part = smaller(length, in->data_left);
    in->data_left -= (uint32_t)part;
    take_messages(connection, bytes, part);
}

static void begin_data(struct connection *connection, struct frame_head head) {
    connection->in.data_left = head.length_bytes;
    connection->in.pad_length_due = (head.flags & FLAG_PADDED) != 0;
    struct stream *stream = streams_find(&connection->streams, head.stream);
    if (stream == NULL || !condemned(stream)) {
        return;
    }
    if (connection->in.flags_at != NULL) {
        execute(connection, stream);
    } else {
        connection->broken = true; /* cut in the same place twice: no accident */
    }
}

/* A client that gives a call less room than a quarter of HTTP/2's default cannot have many open and
   mean to read their answers. */
static bool leaves_no_room(const struct connection *connection) {
    enum { LEAST_WINDOW = 16384, MOST_WITHOUT_ROOM = 64 };
    return connection->initial_window < LEAST_WINDOW &&
           connection->streams.used >= MOST_WITHOUT_ROOM;
}

/* Calls that the server has not got to yet take memory, too, whoever will read their answers. Who
   has few keeps them, however many others have. */
static bool is_too_much(const struct connection *connection) {
    enum { FEW = 32 };
    return connection->streams.used >= FEW && streams_open() >= guard_settings.calls;
}

static void begin_stream(struct connection *connection, uint32_t number) {
    connection->in.last_stream = number;
    connection->broken |= leaves_no_room(connection) || is_too_much(connection) ||
                          !streams_add(&connection->streams, number);
    if (connection->initial_window <= 0) {
        atomic_store_explicit(&connection->suspect, true, memory_order_relaxed);
    }
}

static void begin_frame(struct connection *connection) {
    struct inbound *in = &connection->in;
    const struct frame_head head = in->cursor.head;
    in->field_length = 0;
    if (head.kind == FRAME_DATA) {
        begin_data(connection, head);
    } else if (head.kind == FRAME_HEADERS && head.stream % 2 == 1 &&
               head.stream > in->last_stream) {
        begin_stream(connection, head.stream);
    } else if (head.kind == FRAME_RST_STREAM && head.length_bytes == 4) {
        streams_remove(&connection->streams, head.stream);
    }
    /* END_STREAM removes nothing: grpc-core does not heed it in every frame. What grpc-core has
       closed shows in what it sends. */
}

static size_t take_frames(struct connection *connection, uint8_t *bytes, size_t length) {
    enum { FLAGS_OFFSET = 4 };
    struct inbound *in = &connection->in;
    const size_t before = in->cursor.head_length;
    size_t taken = 0;
    const enum step step = cursor_take(&in->cursor, bytes, length, &taken);
    if (step == PAYLOAD) {
        if (in->cursor.head.kind == FRAME_DATA) {
            take_data(connection, bytes, taken);
        } else {
            windows_take(connection, bytes, taken);
        }
        return taken;
    }
    if (before <= FLAGS_OFFSET && before + taken > FLAGS_OFFSET) {
        in->flags_at = bytes + (FLAGS_OFFSET - before);
    }
    if (step == HEAD_COMPLETE) {
        begin_frame(connection);
    }
    return taken;
}

static size_t take_preface(struct connection *connection, const uint8_t *bytes, size_t length) {
    struct inbound *in = &connection->in;
    const size_t part = smaller(length, (size_t)(PREFACE_BYTES - in->preface_length));
    /* Whatever else this is (TLS, say), it could not be followed. */
    connection->broken |= memcmp(PREFACE + in->preface_length, bytes, part) != 0;
    in->preface_length = (uint8_t)(in->preface_length + part);
    return part;
}

void inbound_take(struct connection *connection, uint8_t *bytes, size_t length) {
    while (length > 0 && !connection->broken) {
        const size_t part = connection->in.preface_length < PREFACE_BYTES
                                ? take_preface(connection, bytes, length)
                                : take_frames(connection, bytes, length);
        bytes += part;
        length -= part;
    }
}
