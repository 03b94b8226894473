/* What the guard's parts share. docs/native.md says what the guard does and why. */
#ifndef TRITONKIT_GUARD_H
#define TRITONKIT_GUARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum frame_kind {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_RST_STREAM = 3,
    FRAME_SETTINGS = 4,
    FRAME_WINDOW_UPDATE = 8,
};

enum {
    FRAME_HEAD_BYTES = 9,
    PREFIX_BYTES = 5,
    SETTING_BYTES = 6,
    FLAG_ACK = 0x1,
    FLAG_END_STREAM = 0x1,
    FLAG_PADDED = 0x8,
};

/* Calls that a client may have open on a connection. It is told half of them: one that counts on
   more has begun before it read that. Each costs grpc-core and Triton some 20 KiB. */
enum { MOST_STREAMS = 2048, ANNOUNCED_STREAMS = MOST_STREAMS / 2 };

/* gRPC's numbers for the outcome of a call. */
enum grpc_status { RESOURCE_EXHAUSTED = 8, UNIMPLEMENTED = 12 };

struct frame_head {
    uint32_t length_bytes;
    uint32_t stream;
    uint8_t kind;
    uint8_t flags;
};

/* Where in a sequence of frames one direction of a connection is. */
struct cursor {
    struct frame_head head; /* of the frame whose payload is under way */
    uint32_t payload_left;
    uint8_t head_bytes[FRAME_HEAD_BYTES];
    uint8_t head_length; /* how much of the next head is here */
};

enum step { HEAD_BEGUN, HEAD_COMPLETE, PAYLOAD };

/* An open call: how far its next message has come. A stream number of 0 marks an empty place. */
struct stream {
    uint32_t number;
    uint32_t body_left;
    int64_t window; /* bytes that the client takes now beyond the connection's initial window */
    uint8_t prefix[PREFIX_BYTES];
    uint8_t prefix_length;
    bool answered; /* the server has sent response headers */
    bool refused;  /* the server is about to reset it */
};

struct streams {
    struct stream *places;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
    uint32_t refused;
};

struct inbound {
    struct cursor cursor;
    uint32_t data_left;   /* of the payload, without padding */
    uint32_t last_stream; /* the highest one opened */
    uint8_t preface_length;
    uint8_t field[SETTING_BYTES]; /* of SETTINGS or WINDOW_UPDATE, as far as it is here */
    uint8_t field_length;
    bool pad_length_due;
    uint8_t *flags_at; /* in the buffer being read; NULL where the reader has had it before */
};

struct outbound {
    struct cursor cursor;
    bool begun;     /* the first frame must be the server's own SETTINGS */
    uint8_t *queue; /* answers of the guard, sent between two frames of the server */
    size_t queue_length;
};

/* Answers that a client does not take, as unread.c saw it last. */
struct unread {
    uint64_t taken;         /* bytes of answers, as far as it was ever seen */
    int64_t slow_since_ns;  /* it has taken enough until then; ahead of now where it took more */
    int64_t still_since_ns; /* the last moment at which it took anything */
    uint32_t waiting;
};

struct connection {
    pthread_mutex_t lock; /* one thread may read while another one writes */
    atomic_bool followed;
    atomic_bool suspect; /* answers may wait for the client */
    atomic_bool stopped; /* the socket takes no more */
    bool broken;
    int64_t window;         /* bytes that the client takes now, of all streams together */
    int64_t initial_window; /* of a stream */
    uint64_t delivered;     /* bytes of answers that the system has taken */
    struct unread unread;
    struct inbound in;
    struct outbound out;
    struct streams streams;
};

struct settings {
    uint16_t grpc_port;      /* 0: none */
    const char *grpc_socket; /* NULL: none */
    uint32_t max_message_bytes;
    uint32_t unread_mib; /* by which unread answers may make the process grow */
    uint32_t unread_s;   /* for a client that takes nothing of its answers */
    uint32_t calls;      /* open on all connections together, before those with many are ended */
};

extern struct settings guard_settings;

/* streams.c */
struct stream *streams_find(const struct streams *streams, uint32_t number);
bool streams_add(struct streams *streams, uint32_t number);
uint32_t streams_open(void);
void streams_remove(struct streams *streams, uint32_t number);
void streams_clear(struct streams *streams);

/* frames.c */
enum step cursor_take(struct cursor *cursor, const uint8_t *bytes, size_t length, size_t *taken);
bool cursor_between_frames(const struct cursor *cursor);

/* sockets.c: connections by descriptor, of which there are connections_end(). */
struct connection *connection_at(int descriptor);
int connections_end(void);

/* windows.c: how much of its answers a client takes. */
void windows_begin(struct connection *connection);
void windows_take(struct connection *connection, const uint8_t *bytes, size_t length);
void windows_spend(struct connection *connection, struct frame_head head);
uint32_t windows_waiting(const struct connection *connection);

/* unread.c: look at the connections marked as suspect until none is. */
void unread_wake(void);

/* inbound.c: look at bytes that came in, and mark what is to be refused. */
void inbound_take(struct connection *connection, uint8_t *bytes, size_t length);

/* outbound.c */
bool outbound_refuse(struct connection *connection, struct stream *stream, enum grpc_status status,
                     const char *message);
size_t outbound_frame_rest(const struct outbound *out);
void outbound_sent(struct connection *connection, const uint8_t *bytes, size_t length);
void outbound_calm(const struct streams *streams, struct cursor *cursor, uint8_t *bytes,
                   size_t length);

/* models.c: another number after each change of the repository. */
uint64_t models_state(void);

/* settings.c */
_Noreturn void guard_fail(const char *where, const char *found, const char *wanted);

/* workarounds.c: whether an address is the program's own, and no library's. */
bool of_program(const void *address);

/* stopping.c: be told by SIGURG that the server is about to end. */
void stopping_begin(void);
extern const char STOPPING[];

/* key.c */
void key_into_arguments(int argc, char **argv);

#endif
