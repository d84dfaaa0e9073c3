/* Stores eight blocks, looks them up, reads them back, and shows what two typical mistakes are answered with. C99.
 *
 * cenote node must be running; CENOTE_SOCKET says where, if not in the default place. Ends with 0 when all was right.
 */
#include <cenote.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 8, KEY_BYTES = 32, BLOCK_BYTES = 64 * 1024, TOKENS_PER_BLOCK = 16 };

/* Every call that can fail gives 0 or a code; the sentence that belongs to it is the thread's last error. */
static int failed(const char* call, int code) {
  if (code == CENOTE_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, cenote_error_name(code), cenote_last_error());
  return 1;
}

/* An engine has keys already: digests that stand for a block's tokens and everything before them. These stand in. */
static void make_keys(unsigned char keys[COUNT][KEY_BYTES]) {
  uint64_t state = 42;
  for (int block = 0; block < COUNT; ++block) {
    for (int byte = 0; byte < KEY_BYTES; ++byte) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      keys[block][byte] = (unsigned char)(state >> 56);
    }
  }
}

static cenote_session* attach(const char* model) {
  const cenote_part parts[] = {{"kv", BLOCK_BYTES}};
  const cenote_group groups[] = {{"full", parts, 1}};
  cenote_spec spec;
  memset(&spec, 0, sizeof spec); /* what is not said is empty */
  spec.struct_size = sizeof spec;
  spec.tokens_per_block = TOKENS_PER_BLOCK;
  spec.id = "example-c";
  spec.model = model;
  spec.dtype = "bf16";
  spec.groups = groups;
  spec.group_count = 1;
  cenote_session* session = NULL;
  return failed("attach", cenote_attach(&spec, NULL, &session)) ? NULL : session;
}

/* 0 when everything was as it should be. */
static int put_and_get(cenote_session* session, unsigned char* blocks, unsigned char* copies) {
  unsigned char key_bytes[COUNT][KEY_BYTES];
  make_keys(key_bytes);
  const cenote_keys keys = {key_bytes, COUNT, KEY_BYTES};
  for (int block = 0; block < COUNT; ++block) memset(blocks + block * BLOCK_BYTES, key_bytes[block][0], BLOCK_BYTES);

  uint32_t group = 0;
  if (failed("group_index", cenote_group_index(session, "full", &group))) return 1;

  /* One buffer for all blocks: BLOCK_BYTES each, BLOCK_BYTES apart. What is present already is not stored again. */
  const cenote_buffers sources = {NULL, blocks, BLOCK_BYTES, BLOCK_BYTES};
  uint64_t stored = 0;
  if (failed("put", cenote_put(session, keys, group, CENOTE_WHOLE_BLOCK, sources, &stored))) return 1;
  printf("put: %d blocks, %d of them new\n", (int)COUNT, (int)stored);

  cenote_match found;
  if (failed("match", cenote_match_prefix(session, keys, group, &found))) return 1;
  printf("match: the first %d blocks are resident\n", (int)found.resident);

  const cenote_buffers targets = {NULL, copies, BLOCK_BYTES, BLOCK_BYTES};
  size_t copied = 0;
  if (failed("get_into", cenote_get_into(session, keys, group, CENOTE_WHOLE_BLOCK, targets, &copied))) return 1;
  const int same = memcmp(blocks, copies, (size_t)COUNT * BLOCK_BYTES) == 0;
  printf("get: %d blocks, the bytes are %s\n", (int)copied, same ? "the same" : "OTHERS");

  /* A miss is no error: the prefix is shorter. */
  unsigned char unknown[KEY_BYTES] = {0};
  const cenote_keys unknown_key = {unknown, 1, KEY_BYTES};
  if (failed("match", cenote_match_prefix(session, unknown_key, group, &found))) return 1;
  printf("match of a key that nobody stored: %d blocks, and no error\n", (int)found.resident);

  /* Sizes are exact. */
  const cenote_buffers too_small = {NULL, copies, BLOCK_BYTES, BLOCK_BYTES - 1};
  const int code = cenote_get_into(session, keys, group, CENOTE_WHOLE_BLOCK, too_small, &copied);
  printf("get into buffers of a wrong size: %s: %s\n", cenote_error_name(code), cenote_last_error());

  return same && found.resident == 0 && code == CENOTE_INVALID_ARGUMENT ? 0 : 1;
}

int main(void) {
  if (cenote_abi_version() >> 16 != CENOTE_ABI_MAJOR) {
    fprintf(stderr, "libcenote has another major version of the C ABI than cenote.h\n");
    return 1;
  }
  cenote_session* session = attach("a-model");
  if (session == NULL) return 1;

  unsigned char* blocks = malloc(2u * COUNT * BLOCK_BYTES);
  int status = blocks == NULL ? 1 : put_and_get(session, blocks, blocks + (size_t)COUNT * BLOCK_BYTES);
  free(blocks);

  /* The agreement of an instance does not change: another model under the same id is refused. */
  cenote_session* other = attach("another-model");
  if (other != NULL) status = 1;
  cenote_free(other);

  if (failed("close", cenote_close(session))) status = 1;
  cenote_free(session);
  puts(status == 0 ? "all as it should be" : "something was wrong");
  return status;
}
