/* Follows what the server sends, and puts the guard's own answers between its frames. */
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_BYTES = 192,
    /* A client that does not read its refusals is not worth more memory. */
    QUEUE_BYTES = 64 * ANSWER_BYTES,
    HEADERS_FLAGS = 0x4 | FLAG_END_STREAM, /* END_HEADERS */
};

static void head_sent(struct connection *connection, struct frame_head head) {
    connection->out.begun = true;
    struct stream *stream =
        head.kind == FRAME_HEADERS ? streams_find(&connection->streams, head.stream) : NULL;
    if (stream != NULL) {
        stream->answered = true;
    }
    windows_spend(connection, head);
}

/* Ended streams are forgotten: grpc-core passes over what they still bring. */
static void frame_sent(struct connection *connection, struct frame_head head) {
    if (head.kind == FRAME_RST_STREAM ||
        (head.kind <= FRAME_HEADERS && (head.flags & FLAG_END_STREAM) != 0)) {
        streams_remove(&connection->streams, head.stream);
    }
}

void outbound_sent(struct connection *connection, const uint8_t *bytes, size_t length) {
    struct cursor *cursor = &connection->out.cursor;
    while (length > 0) {
        size_t taken = 0;
        const enum step step = cursor_take(cursor, bytes, length, &taken);
        if (step == HEAD_COMPLETE) {
            head_sent(connection, cursor->head);
        } else if (step == PAYLOAD && cursor->head.kind == FRAME_DATA) {
            connection->delivered += taken;
        }
        if (cursor_between_frames(cursor)) {
            frame_sent(connection, cursor->head);
        }
        bytes += taken;
        length -= taken;
    }
}

/* In what is about to be sent from `cursor` on: refused calls are reset with NO_ERROR. They have
   had their answer, and grpc's clients take another code for the answer itself. */
void outbound_calm(const struct streams *streams, struct cursor *cursor, uint8_t *bytes,
                   size_t length) {
    while (length > 0) {
        size_t taken = 0;
        if (cursor_take(cursor, bytes, length, &taken) == PAYLOAD &&
            cursor->head.kind == FRAME_RST_STREAM) {
            const struct stream *stream = streams_find(streams, cursor->head.stream);
            if (stream != NULL && stream->refused) {
                memset(bytes, 0, taken);
            }
        }
        bytes += taken;
        length -= taken;
    }
}

/* How much may be sent without going beyond the frame that is under way. */
size_t outbound_frame_rest(const struct outbound *out) {
    return out->cursor.head_length > 0 ? (size_t)(FRAME_HEAD_BYTES - out->cursor.head_length)
                                       : out->cursor.payload_left;
}

static uint8_t *append(uint8_t *to, const char *text) {
    const size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

/* HPACK's literal field without indexing, new name: the client's table stays as the server has it
   (RFC 7541, 6.2.2). Name and value below 127 bytes. */
static uint8_t *append_field(uint8_t *to, const char *name, const char *value) {
    *to++ = 0;
    *to++ = (uint8_t)strlen(name);
    to = append(to, name);
    *to++ = (uint8_t)strlen(value);
    return append(to, value);
}

static size_t write_answer(uint8_t answer[ANSWER_BYTES], const struct stream *stream,
                           enum grpc_status status, const char *message) {
    uint8_t *to = answer + FRAME_HEAD_BYTES;
    char number[4];
    snprintf(number, sizeof number, "%u", (unsigned)status & 0xff);
    if (!stream->answered) {
        *to++ = 0x88; /* :status 200, from HPACK's static table */
        to = append_field(to, "content-type", "application/grpc");
    }
    to = append_field(to, "grpc-status", number);
    to = append_field(to, "grpc-message", message);
    const size_t length = (size_t)(to - answer) - FRAME_HEAD_BYTES;
    const uint8_t head[FRAME_HEAD_BYTES] = {
        0,
        (uint8_t)(length >> 8),
        (uint8_t)length,
        FRAME_HEADERS,
        HEADERS_FLAGS,
        (uint8_t)(stream->number >> 24),
        (uint8_t)(stream->number >> 16),
        (uint8_t)(stream->number >> 8),
        (uint8_t)stream->number,
    };
    memcpy(answer, head, sizeof head);
    return length + FRAME_HEAD_BYTES;
}

/* Queue the end of a call with `status` and `message`, below 100 printable ASCII characters.
   False: there is no room. */
bool outbound_refuse(struct connection *connection, struct stream *stream, enum grpc_status status,
                     const char *message) {
    struct outbound *out = &connection->out;
    if (out->queue == NULL) {
        out->queue = malloc(QUEUE_BYTES);
    }
    if (out->queue == NULL || out->queue_length + ANSWER_BYTES > QUEUE_BYTES) {
        return false;
    }
    out->queue_length += write_answer(out->queue + out->queue_length, stream, status, message);
    stream->refused = true;
    connection->streams.refused++;
    return true;
}
