/* The C ABI of Cenote: what an engine process links or loads (libcenote.so). C99.
 *
 * A session is one attachment to the node of this machine, for one instance (the agreement in cenote_spec). Blocks are
 * named by (key, group); keys come in batches of one width. A miss is not an error.
 *
 * Errors    every function that can fail returns 0 (CENOTE_OK) or a cenote_error; cenote_last_error() is the sentence
 *           that goes with the last failure on the calling thread.
 * Threads   any number of threads may use one session, also at the same time.
 * Handles   numbers in the shape of pointers, which the library looks up: every call may run beside the one that closes
 *           or frees its handle, in another thread, at exit too. A call that began ends, or fails with CENOTE_CLOSED;
 *           the memory goes after it. A call on a handle that was freed is CENOTE_CLOSED, a second free does nothing.
 *           CENOTE_INVALID_ARGUMENT: a handle of another kind.
 * Forks     a handle belongs to the process that made it: in a child every call says CENOTE_FORKED.
 * Waiting   lookups and reads never wait for the node. All other calls wait at most for the session's deadline.
 * Lifetime  strings and arrays passed in are read during the call only.
 * Versions  structs that may grow start with `struct_size`: set it to sizeof. Fields are only ever appended. A client
 *           of the previous minor version of the protocol still attaches.
 */
#ifndef CENOTE_H
#define CENOTE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CENOTE_API __attribute__((visibility("default")))
#else
#define CENOTE_API
#endif

/* 1.1: prefetch options, length, stop, cancel; keep. 1.2: gather, scatter, copy. 1.3: a prefetch's threshold_tokens.
 * 1.4: devices, streams, events; stream and block_offset of copies. 1.5: locate. 1.6: publish, follow.
 * 1.7: groups of ranks. 1.8: sessions whose blocks lie on a device. 1.9: unconfirmed.
 * 1.10: bytes_registered and registration_ns of cenote_stats. 1.11: spans of sampled requests. */
#define CENOTE_ABI_MAJOR 1
#define CENOTE_ABI_MINOR 11

/* Why a call failed. Closed; numbers never change. */
typedef enum cenote_error {
  CENOTE_OK = 0,
  CENOTE_INVALID_ARGUMENT = 1,  /* can never work: size, key width, range */
  CENOTE_INVALID_CONFIG = 2,    /* not used by the client */
  CENOTE_NOT_RUNNING = 3,       /* no node answers at the socket */
  CENOTE_NODE_RESTARTING = 4,   /* the worker was away for longer than the deadline */
  CENOTE_DEADLINE_EXCEEDED = 5, /* the node is there but did not answer in time */
  CENOTE_PROTOCOL_MISMATCH = 6,
  CENOTE_LAYOUT_MISMATCH = 7,
  CENOTE_SPEC_MISMATCH = 8,     /* the instance exists with another spec; the message names the field */
  CENOTE_PERMISSION_DENIED = 9, /* uid, gid or token is not allowed */
  CENOTE_NO_SPACE = 10,         /* nothing can be evicted: pinned, pending or over quota */
  CENOTE_PIN_LIMIT = 11,        /* the session's share of pins is used up */
  CENOTE_LIMIT_EXCEEDED = 12,
  CENOTE_REVOKED = 13,      /* a reservation was taken back; the commit is refused */
  CENOTE_NOT_RESERVED = 14, /* commit of a block that this session does not hold */
  CENOTE_FORKED = 15,
  CENOTE_CLOSED = 16,         /* the session was closed, or its node was stopped */
  CENOTE_SESSION_KILLED = 17, /* the operator ended it, or the node: see the message */
  CENOTE_MALFORMED = 18,
  CENOTE_UNSUPPORTED = 19,
  CENOTE_SYSTEM = 20,
  CENOTE_INTERNAL = 21,
  CENOTE_REMOVAL_PENDING = 22, /* removed here, not confirmed by a tier below or another node: may be served again */
  CENOTE_GROUP_LOST = 23       /* a group of ranks is broken: what was agreed is void; join again. Since 1.7 */
} cenote_error;

/* The name of a code ("no_space"); never null. */
CENOTE_API const char* cenote_error_name(int code);
/* The sentence of the last failure on this thread; never null; valid until the thread's next failing call. */
CENOTE_API const char* cenote_last_error(void);
/* major << 16 | minor of the library that is loaded. */
CENOTE_API uint32_t cenote_abi_version(void);

/* ---- attach ------------------------------------------------------------------------------------------------ */

typedef struct cenote_session cenote_session;

/* One rank's share of a block. Parts lie back to back in the block, in declared order. */
typedef struct cenote_part {
  const char* name;
  uint64_t bytes;
} cenote_part;

typedef struct cenote_group {
  const char* name;
  const cenote_part* parts;
  size_t part_count; /* 1 to 64 */
} cenote_group;

/* An immutable agreement: a user's attach with another spec under the same id is refused. Null strings count as
 * empty. */
typedef struct cenote_spec {
  uint32_t struct_size;
  uint32_t tokens_per_block;
  const char* id;
  const char* model;
  const char* dtype;
  const char* layout;
  const char* hash_scheme;
  const char* fingerprint;    /* of the weights; may be empty */
  const char* instance_group; /* who pays, see groups.<name>; empty: as if it were called like the instance */
  const cenote_group* groups;
  size_t group_count; /* 1 to 16 */
} cenote_spec;

/* All zero (but for struct_size) are the defaults. */
typedef struct cenote_options {
  uint32_t struct_size;
  uint32_t max_pins;       /* 0: 8192. Blocks that may be pinned at one time */
  uint64_t deadline_ns;    /* 0: 5 s. Of every call that needs the node */
  const char* socket;      /* null: $CENOTE_SOCKET, else the runtime directory's */
  const char* token;       /* null: none */
  const char* client_name; /* null: the process's name */
  /* Since 1.8. The device that the blocks of this session lie on: "cuda:GPU-<uuid>", "GPU-<uuid>" or "sim:<number>", as
   * the node's gpu.devices has it. Null or empty: host memory. With a device, the spec is that of the whole instance,
   * and the session is of one rank's part alone: each group has that part and no other (a group with one part has it
   * for all ranks). Addresses of its blocks are for the device; put and get copy through host memory of the library's
   * own. When the device fails, every call says CENOTE_CLOSED: attach to host memory. */
  const char* device;
  uint32_t part;     /* with a device: whose part, counted from 0 */
  uint32_t reserved; /* 0 */
} cenote_options;

/* Attaches. `options` may be null. On success *out is a session that cenote_close and cenote_free end. */
CENOTE_API int cenote_attach(const cenote_spec* spec, const cenote_options* options, cenote_session** out);

/* Refuses further calls, ends all pins, waits (2 s at most) for cenote_put_async, and tells the node. Pointers into
 * blocks stay mapped until cenote_free, but their bytes are no longer protected: reserved blocks must not be written
 * any more, for their memory may be another session's. A second close does nothing. */
CENOTE_API int cenote_close(cenote_session* session);
/* Closes if need be, unmaps and frees, when calls that other threads had begun have ended. Pointers into blocks must
 * not be used any more. Null is allowed; in a forked child it leaks. */
CENOTE_API void cenote_free(cenote_session* session);

/* The number of a group or of a part in it, by name. Numbers count from 0 in declared order. */
CENOTE_API int cenote_group_index(cenote_session* session, const char* name, uint32_t* out);
CENOTE_API int cenote_part_index(cenote_session* session, uint32_t group, const char* name, uint32_t* out);

/* ---- batches ----------------------------------------------------------------------------------------------- */

/* `count` keys of `width` bytes (8 to 64) back to back. */
typedef struct cenote_keys {
  const void* data;
  size_t count;
  size_t width;
} cenote_keys;

typedef struct cenote_buffer {
  void* data;
  uint64_t bytes;
} cenote_buffer;

/* One buffer a key: `list` (one entry a key), or, when `list` is null, buffers of `bytes` each, `stride` bytes apart
 * from `base` on. Sizes must be exact: the part's, or the whole block's. Sources are only read. */
typedef struct cenote_buffers {
  const cenote_buffer* list;
  void* base;
  uint64_t stride;
  uint64_t bytes;
} cenote_buffers;

/* In place of a part's number: the whole block, parts back to back in declared order. */
#define CENOTE_WHOLE_BLOCK (-1)

/* ---- reading: no system call while the blocks' slabs are mapped --------------------------------------------- */

typedef struct cenote_match {
  uint64_t resident;  /* blocks */
  uint64_t reachable; /* >= resident: counts lower local tiers too; a hint */
} cenote_match;

/* The longest prefix of present blocks. */
CENOTE_API int cenote_match_prefix(cenote_session* session, cenote_keys keys, uint32_t group, cenote_match* out);
/* The same, with those tiers asked that do not say what they hold unless they are: `reachable` counts what they say to
 * have. Waits at most `timeout_ns` for the node, which asks them; what is not known by then does not count, and is no
 * error. Sends nothing where all keys are reachable without, or no tier has to be asked. Nothing is loaded: a prefetch
 * asks by itself. Since 1.5.
 */
CENOTE_API int cenote_locate(cenote_session* session, cenote_keys keys, uint32_t group, uint64_t timeout_ns,
                             cenote_match* out);
/* 1 when a tier below says what it holds only when it is asked, so that `reachable` of a match knows nothing of it;
 * else 0, and cenote_locate is cenote_match_prefix. Since 1.5. */
CENOTE_API int cenote_asks_tiers(cenote_session* session, uint32_t* out);
/* One past the last key of the last run of `window` present blocks; 0 when there is no such run. */
CENOTE_API int cenote_match_window(cenote_session* session, cenote_keys keys, uint32_t group, size_t window,
                                   cenote_match* out);
/* present[i] = 1 when block i is complete in DRAM, else 0; `present` has keys.count bytes. */
CENOTE_API int cenote_exists(cenote_session* session, cenote_keys keys, uint32_t group, uint8_t* present);

/* A block pinned for reading: `bytes` at `data`, all parts in declared order. */
typedef struct cenote_held {
  const void* data;
  uint64_t bytes;
  uint32_t slot; /* for cenote_release */
  uint32_t reserved;
} cenote_held;

/* Pins the longest prefix of present blocks; out[0..*count) describes it, `out` has keys.count entries.
 * CENOTE_PIN_LIMIT: the prefix is longer than the session's free pins; nothing is held then. */
CENOTE_API int cenote_acquire(cenote_session* session, cenote_keys keys, uint32_t group, cenote_held* out,
                              size_t* count);
/* Ends `count` pins. */
CENOTE_API int cenote_release(cenote_session* session, const uint32_t* slots, size_t count);
/* Ends the pins of held[0..count). */
CENOTE_API int cenote_release_held(cenote_session* session, const cenote_held* held, size_t count);

/* Copies the longest prefix of present blocks (of `part`, or whole) into `targets`; *copied is its length. */
CENOTE_API int cenote_get_into(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part,
                               cenote_buffers targets, size_t* copied);

/* A chain on its way up from the node's lower tiers. One thread at a time, but for cenote_prefetch_free. Its calls are
 * calls of its session, too: CENOTE_CLOSED when that is freed first. */
typedef struct cenote_prefetch cenote_prefetch;

/* When a prefetch ends, if not all of it came before. */
typedef enum cenote_prefetch_policy {
  CENOTE_PREFETCH_DEFAULT = 0,       /* as the node's configuration says */
  CENOTE_PREFETCH_BEST_EFFORT = 1,   /* at cenote_prefetch_stop */
  CENOTE_PREFETCH_WAIT_COMPLETE = 2, /* never, but for the node's limit of a minute */
  CENOTE_PREFETCH_TIMEOUT = 3        /* base + per_ki_token * (tokens that are not in DRAM) / 1024 after the start */
} cenote_prefetch_policy;

/* Which fields of cenote_prefetch_options count; the others are as the node's configuration says. */
#define CENOTE_PREFETCH_BASE 1u
#define CENOTE_PREFETCH_PER_KI_TOKEN 2u
#define CENOTE_PREFETCH_PREFILL_RATE 4u
#define CENOTE_PREFETCH_THRESHOLD 8u /* since 1.3 */

/* All zero (but for struct_size) are the node's defaults. Since 1.1. */
typedef struct cenote_prefetch_options {
  uint32_t struct_size;
  uint32_t policy;           /* cenote_prefetch_policy */
  uint32_t given;            /* CENOTE_PREFETCH_BASE | … */
  uint32_t threshold_tokens; /* fewer tokens in lower tiers are not brought up */
  uint64_t base_ns;          /* times are rounded up to milliseconds */
  uint64_t per_ki_token_ns;
  uint64_t
      prefill_tokens_per_s; /* of this engine: what recomputing would bring sooner is not loaded. 0: no comparison */
  /* Since 1.11. The request's W3C trace context, "00-<trace>-<parent>-01": where it is sampled, and the node has a
   * collector, the prefetch becomes a span of that trace. Null, or a text that is no trace context: no span. */
  const char* traceparent;
} cenote_prefetch_options;

/* Asks the node to bring the chain's blocks up, in order; returns at once. A hint: acquire or get_into take what came.
 * The node gives up after a minute. What came is kept from eviction from the end of the prefetch until it is freed, ten
 * seconds at most: acquire first, then free. */
CENOTE_API int cenote_prefetch_start(cenote_session* session, cenote_keys keys, uint32_t group, cenote_prefetch** out);
/* The same with options (may be null). Since 1.1. */
CENOTE_API int cenote_prefetch_start_with(cenote_session* session, cenote_keys keys, uint32_t group,
                                          const cenote_prefetch_options* options, cenote_prefetch** out);
/* Waits up to timeout_ns (0: looks once). *done: 1 when nothing more comes; then *length is the number of blocks of the
 * prefix that were resident at that moment, else of this one. CENOTE_LIMIT_EXCEEDED: the session has 256 prefetches
 * that are not over or not freed; this one is done. */
CENOTE_API int cenote_prefetch_wait(cenote_prefetch* prefetch, uint64_t timeout_ns, uint32_t* done, uint64_t* length);
/* Blocks of the prefix that are resident now: grows as they arrive. No system call. Since 1.1. */
CENOTE_API int cenote_prefetch_length(cenote_prefetch* prefetch, uint64_t* length);
/* The engine is ready to compute: a best_effort prefetch ends with what is there, others go on. Since 1.1. */
CENOTE_API int cenote_prefetch_stop(cenote_prefetch* prefetch);
/* Ends it at once with what is there, which is not kept; only what is under way still comes. Since 1.1. */
CENOTE_API int cenote_prefetch_cancel(cenote_prefetch* prefetch);
/* Frees the handle; one that is not done is cancelled. Beside another call it takes effect when that has ended. NULL is
 * allowed. */
CENOTE_API void cenote_prefetch_free(cenote_prefetch* prefetch);

/* ---- spans of requests: since 1.11 --------------------------------------------------------------------------- */

/* The time that the engine took to load a request's blocks. */
typedef struct cenote_load_span {
  uint32_t struct_size;
  uint32_t reserved;       /* 0 */
  const char* traceparent; /* as in cenote_prefetch_options */
  uint64_t begin_ns;       /* since 1970 */
  uint64_t end_ns;
  uint64_t blocks_asked;
  uint64_t blocks_loaded;
  uint64_t bytes; /* loaded */
} cenote_load_span;

/* 1 when the node hands spans to a collector; else 0, and calls about spans do nothing. No system call. */
CENOTE_API int cenote_wants_spans(cenote_session* session, uint32_t* out);
/* Makes a span of the load where its request is sampled and the node has a collector. Never waits; a span that the node
 * does not take in time is dropped and counted there. CENOTE_INVALID_ARGUMENT: it ends before it begins, or a
 * number is 2^63 or more. */
CENOTE_API int cenote_trace_load(cenote_session* session, const cenote_load_span* load);

/* ---- hand-over between nodes: since 1.6 ---------------------------------------------------------------------- */

#define CENOTE_APPEND UINT64_MAX

/* Says that these blocks belong to a request, in this order, whether they are stored already or will be; `request` is 1
 * to 64 bytes, the same at who follows it. `first`: the place of keys[0] in the request, or CENOTE_APPEND: behind those
 * published before; what is there already must be the same. `ends` 1: no key follows these. *published: keys of the
 * request now. A request lives for 60 s after its last change, stored blocks among them; goes with cenote_clear and the
 * node's worker; ends behind its whole blocks with this session; and is of this instance. CENOTE_LIMIT_EXCEEDED: the
 * node has 4,096 requests or 262,144 keys, the session 1,024 or 131,072, or the request 65,536.
 * CENOTE_INVALID_ARGUMENT: these are not its next keys. */
CENOTE_API int cenote_publish(cenote_session* session, const void* request, size_t request_size, cenote_keys keys,
                              uint32_t group, uint64_t first, int ends, uint64_t* published);
/* Brings the request's blocks here as they are stored at `node` (null or "": this one), in order, for timeout_ns at
 * most (a minute at most); returns at once. A request that nobody has published is waited for. What *out is, and how it
 * is waited for, stopped and freed, are as of a prefetch: the length is that of the prefix that came, and it is done
 * when the request has ended and all of it came, when a block cannot be had, or when the time is over. From
 * cenote_prefetch_wait: CENOTE_UNSUPPORTED: the node is alone, or does not ask others; CENOTE_LIMIT_EXCEEDED: also: too
 * much is followed there; CENOTE_CLOSED: the request was cleared, or did not change for 60 s, after keys of it came. */
CENOTE_API int cenote_follow(cenote_session* session, const void* request, size_t request_size, const char* node,
                             uint32_t group, uint64_t timeout_ns, cenote_prefetch** out);
/* The keys of the chain as far as it is known, back to back; of a request that is followed those that came. Valid until
 * the next call with this handle. */
CENOTE_API int cenote_prefetch_keys(const cenote_prefetch* prefetch, cenote_keys* keys);

/* ---- writing ------------------------------------------------------------------------------------------------ */

/* Stores what is not present yet. On success *stored is the number newly stored, visible to every session. On a
 * failure *stored is k: exactly the first k keys are present. CENOTE_NO_SPACE comes at once, without waiting.
 * With a part: of each block that no other writer has, stores this part; the block is visible when all parts are. */
CENOTE_API int cenote_put(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part,
                          cenote_buffers sources, uint64_t* stored);
/* The same without waiting for the end; the buffers may be reused when it returns. *stored is what was handed in. */
CENOTE_API int cenote_put_async(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part,
                                cenote_buffers sources, uint64_t* stored);
/* Waits for every cenote_put_async of the session. *stored: newly stored since the last flush. Fails with the first
 * failure among them. */
CENOTE_API int cenote_flush(cenote_session* session, uint64_t* stored);

typedef enum cenote_reserve_state {
  CENOTE_WRITABLE = 1, /* fill the parts, then cenote_commit */
  CENOTE_PRESENT = 2,  /* complete already; do not write */
  CENOTE_PENDING = 3   /* another writer has these parts; do not write */
} cenote_reserve_state;

typedef struct cenote_reserved {
  void* data;             /* of the whole block, parts in declared order; null unless writable */
  uint64_t bytes;         /* of the whole block */
  uint64_t block;         /* opaque */
  uint64_t parts;         /* one bit a part: those that are yours */
  uint32_t grant_version; /* opaque */
  uint32_t group;
  uint32_t state; /* cenote_reserve_state */
  uint32_t reserved;
} cenote_reserved;

/* Binds blank blocks to keys; `out` has keys.count entries. All or nothing. `part`: the one part that you write. */
CENOTE_API int cenote_reserve(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part,
                              cenote_reserved* out);
/* The parts of blocks[0..count) are written; entries that are not writable are skipped. *completed: blocks that became
 * visible by this. CENOTE_REVOKED, CENOTE_NOT_RESERVED: the first refusal; the other blocks took effect. */
CENOTE_API int cenote_commit(cenote_session* session, const cenote_reserved* blocks, size_t count, uint64_t* completed);
/* Gives reservations back uncommitted. */
CENOTE_API int cenote_abandon(cenote_session* session, const cenote_reserved* blocks, size_t count);

/* ---- forgetting --------------------------------------------------------------------------------------------- */

/* Blocks that are present stay in DRAM from now on (kept: 1) until they are removed or kept no more (kept: 0), whoever
 * asked for it: for prompts that every request begins with. *changed: how many are as asked now. The instance group has
 * a quota of kept blocks (groups.<name>.keep_quota): CENOTE_LIMIT_EXCEEDED when it is used up. */
CENOTE_API int cenote_keep(cenote_session* session, cenote_keys keys, uint32_t group, int kept, uint64_t* changed);

/* Forgets keys; *removed: how many were there. CENOTE_OK: nothing brings them back here; nodes that share a Redis
 * server and are no peers keep what they have in tiers of their own (docs/remote.md). CENOTE_REMOVAL_PENDING: they are
 * gone from memory and are not served here now, but a tier below DRAM could not write that down, or another node
 * or a server has not confirmed it; the node goes on trying. cenote_last_error names the number of
 * removals of the instance that wait for nodes and servers; `cenote status` and the node's log name the place. */
CENOTE_API int cenote_remove(cenote_session* session, cenote_keys keys, uint32_t group, uint64_t* removed);
/* Forgets the whole instance in all tiers; done when it returns CENOTE_OK. CENOTE_REMOVAL_PENDING: as above. */
CENOTE_API int cenote_clear(cenote_session* session);
/* Removals and clears of the instance that other nodes or Redis servers have not confirmed yet, of all sessions, and
 * how many nodes and servers have not confirmed one of them. 0: each that was answered with CENOTE_REMOVAL_PENDING for
 * the sake of nodes or servers is done now, or was dropped because too many waited
 * (`remote.backends[].dropped_removals` in `cenote status`). Disks are not counted. Since 1.9. */
CENOTE_API int cenote_unconfirmed(cenote_session* session, uint64_t* removals, uint64_t* nodes);
/* Returns when everything that this session handed in before is done. */
CENOTE_API int cenote_barrier(cenote_session* session);

/* ---- devices: since 1.4 --------------------------------------------------------------------------------------- */

/* A GPU, or threads that behave like one. Handles may be freed in any order: what still needs a device keeps it. They
 * belong to the process that opened them: in a child every call says CENOTE_FORKED, so open after the fork. */
typedef struct cenote_device cenote_device;
/* Work in order: what is given to a stream begins when all that it was given before has ended. */
typedef struct cenote_stream cenote_stream;
/* A point in a stream. */
typedef struct cenote_event cenote_event;

/* `name`: "cuda:GPU-<uuid>" as nvidia-smi says it, "cuda:<number>", or "sim:<number>" for threads of this process.
 * CENOTE_UNSUPPORTED: no driver, one that is too old, or no such GPU. */
CENOTE_API int cenote_device_open(const char* name, cenote_device** out);
CENOTE_API void cenote_device_free(cenote_device* device);

/* A new stream. */
CENOTE_API int cenote_stream_open(cenote_device* device, cenote_stream** out);
/* An engine's own stream (a CUstream or cudaStream_t; null is the default stream), which must outlive the handle. */
CENOTE_API int cenote_stream_wrap(cenote_device* device, void* native, cenote_stream** out);
/* What cenote_stream_wrap would take; null without a stream. */
CENOTE_API void* cenote_stream_native(const cenote_stream* stream);
/* Its work still ends. */
CENOTE_API void cenote_stream_free(cenote_stream* stream);

/* The point after all that the stream was given. */
CENOTE_API int cenote_event_record(cenote_stream* stream, cenote_event** out);
/* Looks. *done: 1 when all before the event has ended, and its bytes may be looked at. CENOTE_SYSTEM: the device
 * failed, and nobody knows what was written. */
CENOTE_API int cenote_event_done(const cenote_event* event, uint32_t* done);
/* Waits. CENOTE_DEADLINE_EXCEEDED; CENOTE_SYSTEM, CENOTE_CLOSED: the device failed. */
CENOTE_API int cenote_event_wait(const cenote_event* event, uint64_t timeout_ns);
/* What the stream is given from now on begins after the event, which is of the same device. Nobody waits. */
CENOTE_API int cenote_stream_wait(cenote_stream* stream, const cenote_event* event);
CENOTE_API void cenote_event_free(cenote_event* event);

/* Must be called before a device works on this session's blocks: all memory of the instance, also what is added later,
 * is mapped and registered with it in the background, and the node sets aside what this process was writing when it is
 * killed, since a GPU may go on for a while. At most one device a session. */
CENOTE_API int cenote_use_device(cenote_session* session, cenote_device* device);
/* The device that the blocks of this session lie on, for streams that may work on them; cenote_device_free ends the
 * handle. A session that lies on a device uses it from the beginning: cenote_use_device is not needed.
 * CENOTE_INVALID_ARGUMENT: they are host memory. Since 1.8. */
CENOTE_API int cenote_session_device(cenote_session* session, cenote_device** out);
/* Ends pins when all that the stream was given before has ended; returns at once. On a failure they are still held.
 * From then on nobody else may end them: CENOTE_INVALID_ARGUMENT, here and from cenote_release. */
CENOTE_API int cenote_release_after(cenote_session* session, const uint32_t* slots, size_t count,
                                    cenote_stream* stream);
/* Commits at that time; returns at once. cenote_flush waits for it, counts the blocks that became visible and fails
 * with the first failure. If the device fails, the blocks are not committed, and not used for anything else while the
 * session lives. On a failure of this call they are still reserved. */
CENOTE_API int cenote_commit_after(cenote_session* session, const cenote_reserved* blocks, size_t count,
                                   cenote_stream* stream);

/* ---- an engine's memory: since 1.2; no session needed -------------------------------------------------------- */

/* What every block of an engine has in one tensor: block i begins at base + i * block_stride, and is `runs` runs of
 * `run_bytes` bytes, `run_stride` apart. A tensor with more dimensions is several of these. */
typedef struct cenote_strided {
  void* base;
  uint64_t block_stride;
  uint64_t run_bytes;
  uint64_t runs;
  uint64_t run_stride;
} cenote_strided;

/* All zero (but for struct_size) are the defaults. */
typedef struct cenote_copy_options {
  uint32_t struct_size;
  uint32_t threads;      /* at most; 0: as many as cores, four at most. Of no use with a stream */
  cenote_stream* stream; /* null: the processor copies, now. Else a device does, in the stream's order, and the call
                            returns at once: arrays may be reused, but the bytes must stay until an event after the
                            copy is done. Since 1.4; a `void*` that had to be null before */
  uint64_t block_offset; /* bytes from where each block begins to where the first piece lies in it: for some layers of
                            a block. Since 1.4; not for cenote_copy */
} cenote_copy_options;

/* blocks[i] <- the pieces of the engine's block indices[i], back to back in their order (offsets in a block:
 * block_offset and the sums of runs * run_bytes before). `blocks` point into reserved blocks, at their part. With a
 * stream the tensors lie in the device's memory or in registered host memory. `options` may be null. */
CENOTE_API int cenote_gather(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices,
                             void* const* blocks, size_t count, const cenote_copy_options* options);
/* The other way: the engine's blocks <- pinned blocks. */
CENOTE_API int cenote_scatter(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices,
                              const void* const* blocks, size_t count, const cenote_copy_options* options);
/* targets[i] <- bytes[i] bytes at sources[i]; none may overlap another. */
CENOTE_API int cenote_copy(void* const* targets, const void* const* sources, const uint64_t* bytes, size_t count,
                           const cenote_copy_options* options);

/* ---- groups of ranks that agree: since 1.7 -------------------------------------------------------------------- */

/* One rank of a group, for instance of a tensor-parallel one: processes on one node or on several that must all use the
 * same length for the same question. Nothing to do with cenote_group, a kind of state. Any number of threads may use
 * it. Its calls are calls of its session, too: CENOTE_CLOSED when that is freed first. */
typedef struct cenote_rank_group cenote_rank_group;

typedef struct cenote_length {
  uint64_t question;
  uint64_t length;
} cenote_length;

/* Joins group `name` (1 to 64 bytes) as `rank` of `size` (1 to 256), and waits until all ranks have joined: `wait_ns`
 * at most, 0: the session's deadline. `timeout_ns` (1 ms to 1 hour) is how long each question may take; all ranks say
 * the same. Ranks on other nodes are found where those nodes are of one cluster. Of a group that is lost all ranks join
 * again, each with a new call. CENOTE_DEADLINE_EXCEEDED: some rank did not come. CENOTE_SPEC_MISMATCH: ranks differ in
 * size, or in what makes their lengths comparable (the instance's model, dtype, layout, tokens_per_block, hash_scheme,
 * fingerprint). CENOTE_INVALID_ARGUMENT: also for a rank that another session is. CENOTE_LIMIT_EXCEEDED: too many
 * groups. CENOTE_UNSUPPORTED: the node knows no groups. */
CENOTE_API int cenote_group_join(cenote_session* session, const char* name, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ns, uint64_t wait_ns, cenote_rank_group** out);
/* *decided: the least length that the ranks have for the question, or 0 when one did not say its own in time; all get
 * the same number. Every rank asks every question. Their numbers grow, as a counter of requests does; ranks may ask in
 * different orders, as long as no answer is older than 4,096 others (CENOTE_LIMIT_EXCEEDED). Waits `timeout_ns` at
 * most. CENOTE_GROUP_LOST: the group is broken, and every later call says so: a rank left or died, a node or its worker
 * was lost or is not heard, or there was no answer in time. Ranks that have a number for the question already hear it
 * at their next call: what was agreed and is not done with is void. */
CENOTE_API int cenote_agree(cenote_rank_group* group, uint64_t question, uint64_t length, uint64_t* decided);
/* Asks `count` questions and returns; 1,024 may be open at a time (CENOTE_LIMIT_EXCEEDED). */
CENOTE_API int cenote_agree_start(cenote_rank_group* group, const cenote_length* questions, size_t count);
/* What is decided of those, each question once, in any order: out[0..*count), `capacity` at most. Waits `timeout_ns` at
 * most for the first one; no system call if it is there. *count is 0 at once when no question is open. */
CENOTE_API int cenote_agree_poll(cenote_rank_group* group, cenote_length* out, size_t capacity, uint64_t timeout_ns,
                                 size_t* count);
/* Ends the group for all of its ranks: their calls, and this one's, fail with CENOTE_GROUP_LOST. */
CENOTE_API int cenote_group_leave(cenote_rank_group* group);
/* Leaves if need be, and frees. NULL is allowed; in a forked child nobody is told. */
CENOTE_API void cenote_group_free(cenote_rank_group* group);

/* ---- counters ----------------------------------------------------------------------------------------------- */

/* Since the attach; of this client. */
typedef struct cenote_stats {
  uint32_t struct_size; /* in: sizeof of the caller's struct; out: bytes filled */
  uint32_t reserved;
  uint64_t session; /* number, as in `cenote status` */
  uint64_t keys_looked_up;
  uint64_t keys_found;
  uint64_t blocks_pinned;
  uint64_t blocks_copied_out;
  uint64_t bytes_copied_out;
  uint64_t blocks_stored;
  uint64_t bytes_copied_in;
  uint64_t pins_in_use;
  uint64_t pin_slots;
  uint64_t reservations;
  uint64_t slabs_mapped;
  uint64_t touches_dropped;
  uint64_t reattaches;         /* times a new worker was met */
  uint64_t slabs_registered;   /* with the session's device, whole; since 1.4 */
  uint64_t slabs_refused;      /* by it: copies of their blocks go through a stage */
  uint64_t waiting_for_device; /* calls of cenote_release_after and cenote_commit_after */
  uint64_t bytes_registered;   /* with the device so far, also those that were given back since; since 1.10 */
  uint64_t registration_ns;    /* in the device's calls for them, and for those that it refused */
} cenote_stats;

CENOTE_API int cenote_stats_of(cenote_session* session, cenote_stats* out);

#ifdef __cplusplus
}
#endif

#endif /* CENOTE_H */
