/* Follows how much of its answers a client takes: HTTP/2's windows, which it opens by what it sends
   (RFC 9113, section 5.2), and its socket. */
#include "guard.h"

enum { FIRST_WINDOW = 65535, UPDATE_BYTES = 4, INITIAL_WINDOW_SIZE = 4 };

void windows_begin(struct connection *connection) {
    connection->window = connection->initial_window = FIRST_WINDOW;
    connection->delivered = 0;
    connection->unread = (struct unread){0};
    atomic_store_explicit(&connection->suspect, false, memory_order_relaxed);
    atomic_store_explicit(&connection->stopped, false, memory_order_relaxed);
}

static uint32_t number_in(const uint8_t bytes[4]) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* A new initial window changes those of the streams that are open, which are kept without it: a
   frame may bring thousands of settings. */
static void take_setting(struct connection *connection) {
    const uint8_t *const field = connection->in.field;
    if (field[0] != 0 || field[1] != INITIAL_WINDOW_SIZE) {
        return;
    }
    connection->initial_window = number_in(field + 2);
}

static void take_update(struct connection *connection) {
    const int64_t more = number_in(connection->in.field) & INT32_MAX;
    const uint32_t number = connection->in.cursor.head.stream;
    struct stream *const stream = streams_find(&connection->streams, number);
    if (number == 0) {
        connection->window += more;
    } else if (stream != NULL) {
        stream->window += more;
    }
}

/* Take some of the payload of any frame. */
void windows_take(struct connection *connection, const uint8_t *bytes, size_t length) {
    struct inbound *const in = &connection->in;
    const bool is_settings =
        in->cursor.head.kind == FRAME_SETTINGS && (in->cursor.head.flags & FLAG_ACK) == 0;
    if (!is_settings && in->cursor.head.kind != FRAME_WINDOW_UPDATE) {
        return;
    }
    for (size_t at = 0; at < length; at++) {
        in->field[in->field_length++] = bytes[at];
        if (in->field_length == (is_settings ? SETTING_BYTES : UPDATE_BYTES)) {
            in->field_length = 0;
            (is_settings ? take_setting : take_update)(connection);
        }
    }
}

static bool is_full(const struct connection *connection, const struct stream *stream) {
    return connection->initial_window + stream->window <= 0;
}

/* The server sends a frame. grpc-core sends the response headers of a call when its answer is
   there, and of the answer as much as the windows have room for. */
void windows_spend(struct connection *connection, struct frame_head head) {
    struct stream *const stream = streams_find(&connection->streams, head.stream);
    if (stream == NULL) {
        return;
    }
    if (head.kind == FRAME_DATA) {
        connection->window -= head.length_bytes;
        stream->window -= head.length_bytes;
    }
    if (connection->window <= 0 || is_full(connection, stream)) {
        atomic_store_explicit(&connection->suspect, true, memory_order_relaxed);
    }
}

/* The calls whose answers wait for the client, or will: one that gives a call no room at all
   has not begun to read. */
uint32_t windows_waiting(const struct connection *connection) {
    if (atomic_load_explicit(&connection->stopped, memory_order_relaxed)) {
        return connection->streams.used;
    }
    uint32_t waiting = 0;
    for (uint32_t place = 0; place < connection->streams.capacity; place++) {
        const struct stream *const stream = &connection->streams.places[place];
        waiting += stream->number != 0 &&
                   (is_full(connection, stream) || (stream->answered && connection->window <= 0));
    }
    return waiting;
}
