/* The indexer within a program (libcenote_indexer.so): which pod has the longest prefix of a prompt, from the KV events
 * that the program receives by whatever way it likes. No server, no socket, no thread of its own. C99.
 *
 * Errors    every function that can fail returns 0 (CENOTE_INDEXER_OK) or a cenote_indexer_error, which are codes of
 *           cenote.h; cenote_indexer_last_error() is the sentence of the last failure on the calling thread.
 * Threads   the calls on a cenote_indexer change it or count: one thread at a time, a second one beside it is refused
 *           with CENOTE_INDEXER_LIMIT_EXCEEDED. Questions go to readers, up to 128 for an index and one thread at a
 *           time for each; they run beside the thread that feeds, and neither waits for the other.
 * Handles   numbers in the shape of pointers, which the library looks up: a call on a handle that was freed, or on a
 *           reader whose index was freed, is CENOTE_INDEXER_CLOSED; a second free does nothing.
 * Forks     a handle belongs to the process that made it: in a child every call is CENOTE_INDEXER_FORKED.
 * Lifetime  arguments are read during the call only. Answers of a reader lie in the reader, up to its next call; texts
 *           have no zero behind them.
 * Waiting   nothing waits.
 * Versions  structs that may grow start with `struct_size`: set it to sizeof, also in those that a call fills. Fields
 *           are only ever appended.
 */
#ifndef CENOTE_INDEXER_H
#define CENOTE_INDEXER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CENOTE_INDEXER_API __attribute__((visibility("default")))
#else
#define CENOTE_INDEXER_API
#endif

#define CENOTE_INDEXER_ABI_MAJOR 1
#define CENOTE_INDEXER_ABI_MINOR 0

/* The reason for which a call failed. Numbers never change. */
typedef enum cenote_indexer_error {
  CENOTE_INDEXER_OK = 0,
  CENOTE_INDEXER_INVALID_ARGUMENT = 1, /* can never work: a null pointer, a size, a name */
  CENOTE_INDEXER_SPEC_MISMATCH = 8,    /* the topic is open with other settings */
  CENOTE_INDEXER_LIMIT_EXCEEDED = 12,  /* pods, topics, readers, memory; or another thread is at it */
  CENOTE_INDEXER_FORKED = 15,
  CENOTE_INDEXER_CLOSED = 16,
  CENOTE_INDEXER_SYSTEM = 20, /* out of memory */
  CENOTE_INDEXER_INTERNAL = 21
} cenote_indexer_error;

/* The sentence of the last failure on this thread; never null; valid until the thread's next failing call. */
CENOTE_INDEXER_API const char* cenote_indexer_last_error(void);
/* major << 16 | minor of the library that is loaded. */
CENOTE_INDEXER_API uint32_t cenote_indexer_abi_version(void);

/* `bytes` bytes of UTF-8 at `data`. Null with 0 bytes is the empty text. */
typedef struct cenote_indexer_text {
  const char* data;
  size_t bytes;
} cenote_indexer_text;

/* ---- the index ---------------------------------------------------------------------------------------------- */

typedef struct cenote_indexer cenote_indexer;

/* The hash of a prompt's blocks. */
typedef enum cenote_indexer_key {
  CENOTE_INDEXER_XXH3 = 0,
  CENOTE_INDEXER_FNV64_CBOR = 1 /* llm-d's */
} cenote_indexer_key;

/* The engine of the events that are fed. */
typedef enum cenote_indexer_engine {
  CENOTE_INDEXER_AUTO = 0,
  CENOTE_INDEXER_VLLM = 1,
  CENOTE_INDEXER_SGLANG = 2,
  CENOTE_INDEXER_CENOTE = 3
} cenote_indexer_engine;

/* The questions that the program can answer, see cenote_indexer_outcome. */
typedef enum cenote_indexer_replays {
  CENOTE_INDEXER_REPLAYS = 0,      /* batches from a number on */
  CENOTE_INDEXER_NO_REPLAYS = 1,   /* none: what is missed is lost, the publisher's blocks go, it is degraded */
  CENOTE_INDEXER_SNAPSHOTS_TOO = 2 /* also all that a publisher has, as nodes of Cenote answer it */
} cenote_indexer_replays;

/* The worth of a block in a medium. */
typedef struct cenote_indexer_weight {
  cenote_indexer_text medium; /* "gpu", "cpu", "disk", "shared_storage", "object_store", or another */
  double weight;              /* 0 or more */
} cenote_indexer_weight;

/* All zero (but for struct_size) are the defaults. */
typedef struct cenote_indexer_options {
  uint32_t struct_size;
  uint32_t key;                         /* cenote_indexer_key */
  uint32_t engine;                      /* cenote_indexer_engine */
  uint32_t replays;                     /* cenote_indexer_replays */
  uint64_t memory;                      /* bytes, a hard bound; 0: 2 GiB */
  cenote_indexer_text seed;             /* of the keys; empty with XXH3: a random one */
  const cenote_indexer_weight* weights; /* they replace the table: media that are not named weigh 0 */
  size_t weight_count;                  /* 0: gpu 1.0, cpu 0.8, disk 0.6, shared_storage 0.4, object_store 0.2 */
  uint32_t block_tokens;                /* of all blocks of the index, 65,536 at most; 0: each publisher's own */
  uint32_t reserved;                    /* 0 */
} cenote_indexer_options;

/* `options` may be null. */
CENOTE_INDEXER_API int cenote_indexer_open(const cenote_indexer_options* options, cenote_indexer** out);
/* Refuses further calls; the memory goes when its readers are freed, too, and calls under way have ended. Null is
 * allowed; in a forked child it leaks. */
CENOTE_INDEXER_API void cenote_indexer_free(cenote_indexer* indexer);

/* ---- feeding: one thread at a time --------------------------------------------------------------------------- */

/* The fate of one batch. */
typedef enum cenote_indexer_fate {
  CENOTE_INDEXER_APPLIED = 0,
  CENOTE_INDEXER_REPEATED = 1,   /* it was there already */
  CENOTE_INDEXER_WAITING = 2,    /* batches before it are missing, or an answer is awaited: it is applied behind them */
  CENOTE_INDEXER_UNREADABLE = 3, /* it, or a removal in it, made no sense: the publisher's blocks went */
  CENOTE_INDEXER_DROPPED = 4,    /* it is too large (over 16 MiB), or there was no room for it to wait */
  CENOTE_INDEXER_LATE = 5        /* of an answer that is over */
} cenote_indexer_fate;

/* The reason for which all blocks of a publisher went. */
typedef enum cenote_indexer_cleared {
  CENOTE_INDEXER_NOT_CLEARED = 0,
  CENOTE_INDEXER_RESTART = 1, /* the engine began anew */
  CENOTE_INDEXER_LOSS = 2,    /* batches are lost, removals maybe */
  CENOTE_INDEXER_RENEWAL = 3  /* what follows takes the place of all there was */
} cenote_indexer_cleared;

typedef enum cenote_indexer_state {
  CENOTE_INDEXER_CONNECTING = 0,
  CENOTE_INDEXER_REPLAYING = 1,
  CENOTE_INDEXER_LIVE = 2,
  CENOTE_INDEXER_DEGRADED = 3, /* events are lost for good: blocks may be missing, none is there too much */
  CENOTE_INDEXER_SILENT = 4
} cenote_indexer_state;

/* Of a call that feeds. `ask`, if it is not 0, is a question to the topic's publisher (its replay socket): all batches
 * from `ask_start` to its newest, or with `ask_snapshot` all that it has. Each question is given once. Until its answer
 * is through, live batches wait, within 16 MiB; an answer that is late (a second, then two, ...) is asked for again,
 * and without any the live batches are applied as they come. */
typedef struct cenote_indexer_outcome {
  uint32_t struct_size;
  uint32_t fate;          /* cenote_indexer_fate */
  uint32_t cleared;       /* cenote_indexer_cleared */
  uint32_t state;         /* cenote_indexer_state of the publisher */
  uint64_t applied;       /* batches that went into the index, those that had waited among them */
  uint64_t missing_first; /* numbers between this batch and the one before ... */
  uint64_t missing;       /* ... and how many; 0: none */
  uint64_t ask;
  uint64_t ask_start;
  uint32_t ask_snapshot;
  uint32_t reserved;
} cenote_indexer_outcome;

/* A batch as its publisher's socket has it: the topic `kv@<pod>@<model>`, its number, MessagePack. A topic is opened
 * when it is new. `out` may be null: use it so only with CENOTE_INDEXER_NO_REPLAYS. */
CENOTE_INDEXER_API int cenote_indexer_feed(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t seq,
                                           const void* payload, size_t bytes, cenote_indexer_outcome* out);
/* A batch that answers the question `ask`; of a snapshot the number does not matter. */
CENOTE_INDEXER_API int cenote_indexer_replay(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask,
                                             uint64_t seq, const void* payload, size_t bytes,
                                             cenote_indexer_outcome* out);
/* The answer is through. `next` is the number of its last frame: UINT64_MAX of a replay; of a snapshot the number of
 * the batch with which live ones go on, or UINT64_MAX where the publisher has no snapshots. */
CENOTE_INDEXER_API int cenote_indexer_replay_end(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask,
                                                 uint64_t next, cenote_indexer_outcome* out);
/* There is no answer. */
CENOTE_INDEXER_API int cenote_indexer_replay_failed(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask,
                                                    cenote_indexer_outcome* out);

typedef struct cenote_indexer_ask {
  uint32_t struct_size;
  uint32_t snapshot;
  uint64_t number; /* 0: there is none now */
  uint64_t start;
  cenote_indexer_text topic; /* until the next call on the indexer */
} cenote_indexer_ask;

/* The next question that was not given yet, of any topic: those that came late, or again. To be called a few times a
 * second where questions are answered. */
CENOTE_INDEXER_API int cenote_indexer_next_ask(cenote_indexer* indexer, cenote_indexer_ask* out);

/* Facts about the publisher of a topic that the topic does not name. */
typedef struct cenote_indexer_topic {
  uint32_t struct_size;
  uint32_t engine;           /* cenote_indexer_engine; 0: the index's */
  cenote_indexer_text pod;   /* empty: the topic's */
  cenote_indexer_text model; /* empty: the topic's */
  cenote_indexer_text node;  /* whose blocks are this pod's, too: the pod of its publisher is `node:<node>` */
} cenote_indexer_topic;

/* Opens a topic with settings of its own; nothing if it is open with the same. */
CENOTE_INDEXER_API int cenote_indexer_topic_open(cenote_indexer* indexer, cenote_indexer_text topic,
                                                 const cenote_indexer_topic* settings);
/* The publisher and its blocks go. *was_open, which may be null: 0, if there was none. */
CENOTE_INDEXER_API int cenote_indexer_topic_close(cenote_indexer* indexer, cenote_indexer_text topic,
                                                  uint32_t* was_open);
/* Takes all blocks from a pod, in one medium or (empty) in all. *was_there, which may be null: 0, if there is no such
 * pod. */
CENOTE_INDEXER_API int cenote_indexer_clear(cenote_indexer* indexer, cenote_indexer_text pod,
                                            cenote_indexer_text medium, uint32_t* was_there);
/* Gives memory back. Feeding does it about ten times a second; worth a call where nothing is fed for long. */
CENOTE_INDEXER_API int cenote_indexer_advance(cenote_indexer* indexer);

/* Sums since the index was opened, and what there is now. */
typedef struct cenote_indexer_figures {
  uint32_t struct_size;
  uint32_t publishers;    /* topics that are open */
  uint64_t memory;        /* bytes, the bound */
  uint64_t memory_in_use; /* bytes of it */
  uint64_t batches;       /* that were decoded */
  uint64_t bad_batches;   /* that could not be */
  uint64_t stored;        /* blocks */
  uint64_t removed;       /* blocks */
  uint64_t clears;        /* events that cleared a pod */
  uint64_t refused;       /* blocks that were passed over: unknown parents and names, groups, sizes, bounds, memory */
  uint64_t bad_events;    /* events that made no sense */
  uint64_t evicted;       /* blocks that made room for others */
  uint64_t evicted_held;  /* of these, blocks that a pod has */
} cenote_indexer_figures;

CENOTE_INDEXER_API int cenote_indexer_figures_of(cenote_indexer* indexer, cenote_indexer_figures* out);

/* ---- questions: one reader a thread -------------------------------------------------------------------------- */

typedef struct cenote_indexer_reader cenote_indexer_reader;

CENOTE_INDEXER_API int cenote_indexer_reader_open(cenote_indexer* indexer, cenote_indexer_reader** out);
/* Null is allowed; in a forked child it leaks. */
CENOTE_INDEXER_API void cenote_indexer_reader_free(cenote_indexer_reader* reader);

#define CENOTE_INDEXER_MEDIA 8

/* A prompt: its tokens, or without any the keys of its blocks. */
typedef struct cenote_indexer_question {
  uint32_t struct_size;
  uint32_t reserved;
  cenote_indexer_text model;
  const uint32_t* tokens;
  size_t token_count; /* 2^20 at most */
  const uint64_t* keys;
  size_t key_count;              /* 2^20 at most */
  cenote_indexer_text lora_name; /* empty: the base model */
  cenote_indexer_text cache_salt;
  const cenote_indexer_text* pods; /* only these */
  size_t pod_count;                /* 0: all; 65,536 at most */
} cenote_indexer_question;

/* The longest prefix that a pod's best rank has. */
typedef struct cenote_indexer_score_row {
  cenote_indexer_text pod;
  double score; /* sum of the weights of its blocks, in blocks of the model's smallest size */
  uint32_t blocks;
  uint32_t tokens;
  uint32_t dp_rank;
  uint32_t reserved;
  uint32_t by_medium[CENOTE_INDEXER_MEDIA]; /* blocks by their best medium */
} cenote_indexer_score_row;

typedef struct cenote_indexer_answer {
  uint32_t struct_size;
  uint32_t block_tokens;                /* tokens of the model's smallest blocks; 0: the model is unknown */
  uint64_t blocks;                      /* whole blocks of the prompt */
  const cenote_indexer_score_row* rows; /* best first, then by name */
  size_t row_count;
  const cenote_indexer_text* degraded; /* pods of the model that have lost events for good */
  size_t degraded_count;
} cenote_indexer_answer;

/* The pods that have a prefix of the prompt. An unknown model and a prompt of less than a block have none. Allocates
 * nothing once the reader has answered a question as large, of as many pods. */
CENOTE_INDEXER_API int cenote_indexer_score(cenote_indexer_reader* reader, const cenote_indexer_question* question,
                                            cenote_indexer_answer* out);

typedef struct cenote_indexer_keys {
  uint32_t struct_size;
  uint32_t reserved;
  const uint64_t* keys;
  size_t key_count;
} cenote_indexer_keys;

/* The keys of a prompt's whole blocks, of the model's smallest size; none where the model is unknown. */
CENOTE_INDEXER_API int cenote_indexer_keys_of(cenote_indexer_reader* reader, const cenote_indexer_question* question,
                                              cenote_indexer_keys* out);

/* A rank of a pod that has a block in a medium. */
typedef struct cenote_indexer_holder {
  cenote_indexer_text pod;
  uint32_t dp_rank;
  uint32_t medium;
} cenote_indexer_holder;

/* The holders of block i are those from ends[i - 1] (of the first 0) to ends[i]. */
typedef struct cenote_indexer_holders {
  uint32_t struct_size;
  uint32_t reserved;
  const cenote_indexer_holder* holders;
  const uint64_t* ends;
  size_t block_count; /* up to the first block that nothing holds */
} cenote_indexer_holders;

/* The holders of blocks. CENOTE_INDEXER_LIMIT_EXCEEDED: they are more than 2^18. */
CENOTE_INDEXER_API int cenote_indexer_lookup(cenote_indexer_reader* reader, const uint64_t* keys, size_t key_count,
                                             cenote_indexer_holders* out);

/* The name of a medium, by its number in rows and holders; empty: the number has none. */
CENOTE_INDEXER_API int cenote_indexer_medium(cenote_indexer_reader* reader, uint32_t medium, cenote_indexer_text* out);

/* A rank of a pod and the publisher of its blocks. */
typedef struct cenote_indexer_pod {
  cenote_indexer_text pod;
  cenote_indexer_text model;
  cenote_indexer_text topic;
  uint32_t dp_rank;
  uint32_t state;    /* cenote_indexer_state */
  uint64_t next_seq; /* behind the newest batch that was applied; 0: none was */
  uint64_t blocks[CENOTE_INDEXER_MEDIA];
  uint64_t applied;  /* batches */
  uint64_t gaps;     /* numbers that were too high */
  uint64_t replayed; /* batches */
  uint64_t restarts;
  uint64_t lost_batches; /* batches that cannot be had */
} cenote_indexer_pod;

typedef struct cenote_indexer_pods {
  uint32_t struct_size;
  uint32_t reserved;
  const cenote_indexer_pod* pods;
  size_t pod_count;
} cenote_indexer_pods;

/* All pods. Counts as a call of the thread that feeds, too. */
CENOTE_INDEXER_API int cenote_indexer_pods_of(cenote_indexer_reader* reader, cenote_indexer_pods* out);

#ifdef __cplusplus
}
#endif

#endif
