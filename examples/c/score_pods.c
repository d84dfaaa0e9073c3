/* Feeds the events of two engines to an index of its own, asks which of them has the most of a prompt, and shows how a
 * gap in their numbers is closed. C99. It needs no server. Ends with 0 when all was right.
 */
#include <cenote_indexer.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 8, TOKENS_PER_BLOCK = 16, TOKENS = BLOCKS * TOKENS_PER_BLOCK };

/* Every call that can fail gives 0 or a code; the sentence that belongs to it is the thread's last error. */
static int failed(const char* call, int code) {
  if (code == CENOTE_INDEXER_OK) return 0;
  fprintf(stderr, "%s: %d: %s\n", call, code, cenote_indexer_last_error());
  return 1;
}

static cenote_indexer_text text(const char* content) {
  const cenote_indexer_text made = {content, strlen(content)};
  return made;
}

/* A program has payloads from an engine's socket already; this one writes its own, in MessagePack. */
typedef struct payload {
  unsigned char bytes[2048];
  size_t size;
} payload;

static void put_byte(payload* out, unsigned value) {
  out->bytes[out->size++] = (unsigned char)value;
}

static void put_text(payload* out, const char* content) {
  put_byte(out, 0xa0u | (unsigned)strlen(content));
  while (*content != '\0') put_byte(out, (unsigned char)*content++);
}

static void put_number(payload* out, uint32_t value) {
  put_byte(out, 0xce);
  for (int shift = 24; shift >= 0; shift -= 8) put_byte(out, value >> shift & 0xffu);
}

static void put_array(payload* out, unsigned size) {
  put_byte(out, 0xdc);
  put_byte(out, size >> 8 & 0xffu);
  put_byte(out, size & 0xffu);
}

/* [ts, [["BlockStored", hashes, parent, tokens, block size, no LoRA, medium]], data-parallel rank] of `count` blocks
 * from `first` on: block i has the hash 1000 + i. */
static payload stored(const uint32_t* tokens, uint32_t first, uint32_t count) {
  payload made;
  made.size = 0;
  put_array(&made, 3);
  put_number(&made, 1);
  put_array(&made, 1);
  put_array(&made, 7);
  put_text(&made, "BlockStored");
  put_array(&made, count);
  for (uint32_t i = first; i < first + count; ++i) put_number(&made, 1000 + i);
  if (first == 0) {
    put_byte(&made, 0xc0);
  } else {
    put_number(&made, 1000 + first - 1);
  }
  put_array(&made, count * TOKENS_PER_BLOCK);
  for (uint32_t i = first * TOKENS_PER_BLOCK; i < (first + count) * TOKENS_PER_BLOCK; ++i) put_number(&made, tokens[i]);
  put_number(&made, TOKENS_PER_BLOCK);
  put_byte(&made, 0xc0);
  put_text(&made, "GPU");
  put_number(&made, 0);
  return made;
}

/* 0 when the batch met the fate that was expected. */
static int feed(cenote_indexer* index, const char* topic, uint64_t seq, const payload* batch,
                cenote_indexer_fate expected, cenote_indexer_outcome* outcome) {
  memset(outcome, 0, sizeof *outcome);
  outcome->struct_size = sizeof *outcome;
  const int code = cenote_indexer_feed(index, text(topic), seq, batch->bytes, batch->size, outcome);
  if (failed("feed", code)) return 1;
  return outcome->fate != (uint32_t)expected;
}

static int ask(cenote_indexer_reader* reader, const uint32_t* tokens, const char* best, uint32_t blocks) {
  cenote_indexer_question question;
  cenote_indexer_answer answer;
  memset(&question, 0, sizeof question); /* fields that are not set are empty */
  memset(&answer, 0, sizeof answer);
  question.struct_size = sizeof question;
  answer.struct_size = sizeof answer;
  question.model = text("a-model");
  question.tokens = tokens;
  question.token_count = TOKENS;
  if (failed("score", cenote_indexer_score(reader, &question, &answer))) return 1;
  for (size_t i = 0; i < answer.row_count; ++i) {
    const cenote_indexer_score_row* row = &answer.rows[i];
    printf("%.*s: %u of %u blocks, score %.1f\n", (int)row->pod.bytes, row->pod.data, (unsigned)row->blocks,
           (unsigned)answer.blocks, row->score);
  }
  return answer.row_count == 0 || answer.rows[0].pod.bytes != strlen(best) ||
         memcmp(answer.rows[0].pod.data, best, strlen(best)) != 0 || answer.rows[0].blocks != blocks;
}

/* Pod b's batch 1 is lost on its way: it is asked for at the publisher, with what comes before and behind it. */
static int close_gap(cenote_indexer* index, const uint32_t* tokens) {
  payload batches[3];
  batches[0] = stored(tokens, 0, 2);
  batches[1] = stored(tokens, 2, 4);
  batches[2] = stored(tokens, 6, 2);
  cenote_indexer_outcome outcome;
  if (feed(index, "kv@b@a-model", 0, &batches[0], CENOTE_INDEXER_APPLIED, &outcome)) return 1;
  if (feed(index, "kv@b@a-model", 2, &batches[2], CENOTE_INDEXER_WAITING, &outcome)) return 1;
  printf("%u batch is missing, from %u on; ask for %u and the rest\n", (unsigned)outcome.missing,
         (unsigned)outcome.missing_first, (unsigned)outcome.ask_start);
  const uint64_t question = outcome.ask;
  if (question == 0) return 1;
  for (uint64_t seq = outcome.ask_start; seq < 3; ++seq) {
    const int code = cenote_indexer_replay(index, text("kv@b@a-model"), question, seq, batches[seq].bytes,
                                           batches[seq].size, &outcome);
    if (failed("replay", code)) return 1;
  }
  if (failed("replay_end", cenote_indexer_replay_end(index, text("kv@b@a-model"), question, UINT64_MAX, &outcome))) {
    return 1;
  }
  return outcome.state != CENOTE_INDEXER_LIVE;
}

static int run(cenote_indexer* index, cenote_indexer_reader* reader) {
  uint32_t tokens[TOKENS];
  for (uint32_t i = 0; i < TOKENS; ++i) tokens[i] = 9000 + i;
  const payload three = stored(tokens, 0, 3);
  cenote_indexer_outcome outcome;
  if (feed(index, "kv@a@a-model", 0, &three, CENOTE_INDEXER_APPLIED, &outcome)) return 1;
  if (ask(reader, tokens, "a", 3)) return 1;
  return close_gap(index, tokens);
}

int main(void) {
  cenote_indexer_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.memory = 64u << 20;
  cenote_indexer* index = NULL;
  cenote_indexer_reader* reader = NULL;
  if (failed("open", cenote_indexer_open(&options, &index))) return 1;
  const int status = failed("reader", cenote_indexer_reader_open(index, &reader)) || run(index, reader);
  cenote_indexer_reader_free(reader);
  cenote_indexer_free(index);
  if (status == 0) printf("all as it should be\n");
  return status;
}
