/* Finds the frames in a sequence of bytes that may be cut anywhere (RFC 9113, section 4.1). */
#include "guard.h"

#include <string.h>

static struct frame_head read_head(const uint8_t bytes[FRAME_HEAD_BYTES]) {
    return (struct frame_head){
        .length_bytes = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2],
        .kind = bytes[3],
        .flags = bytes[4],
        .stream = (uint32_t)(bytes[5] & 0x7f) << 24 | (uint32_t)bytes[6] << 16 |
                  (uint32_t)bytes[7] << 8 | bytes[8],
    };
}

/* Take bytes of one head or of one payload, at least one and at most `length`: `taken` says how
   many. */
enum step cursor_take(struct cursor *cursor, const uint8_t *bytes, size_t length, size_t *taken) {
    if (cursor->payload_left > 0) {
        *taken = length < cursor->payload_left ? length : cursor->payload_left;
        cursor->payload_left -= (uint32_t)*taken;
        return PAYLOAD;
    }
    const size_t due = (size_t)(FRAME_HEAD_BYTES - cursor->head_length);
    *taken = length < due ? length : due;
    memcpy(cursor->head_bytes + cursor->head_length, bytes, *taken);
    cursor->head_length = (uint8_t)(cursor->head_length + *taken);
    if (cursor->head_length < FRAME_HEAD_BYTES) {
        return HEAD_BEGUN;
    }
    cursor->head = read_head(cursor->head_bytes);
    cursor->head_length = 0;
    cursor->payload_left = cursor->head.length_bytes;
    return HEAD_COMPLETE;
}

bool cursor_between_frames(const struct cursor *cursor) {
    return cursor->head_length == 0 && cursor->payload_left == 0;
}
