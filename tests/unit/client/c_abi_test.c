/* Compiled as C99: the header is C, and what needs no node works. Returns the line of the first failure, or 0. */
#include "client/cenote.h"

#include <string.h>

int cenote_c_abi_test(void);

#define EXPECT(condition)              \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

int cenote_c_abi_test(void) {
  cenote_part part;
  cenote_group group;
  cenote_spec spec;
  cenote_options options;
  cenote_session* session = NULL;
  cenote_keys keys = {NULL, 0, 0};
  cenote_match match;
  cenote_prefetch* prefetch = NULL;
  uint64_t length = 0;
  char from[] = "pinned";
  char to[] = "engine";
  void* targets[] = {to};
  const void* sources[] = {from};
  uint64_t sizes[] = {sizeof from};
  uint64_t index = 1;
  cenote_strided piece = {NULL, 0, 0, 0, 0};
  cenote_copy_options copying = {0, 0, NULL, 0};
  cenote_device* device = NULL;
  cenote_device* other = NULL;
  cenote_stream* stream = NULL;
  cenote_stream* same = NULL;
  cenote_event* event = NULL;
  uint32_t done = 0;
  memset(&spec, 0, sizeof spec);
  memset(&options, 0, sizeof options);
  part.name = "kv";
  part.bytes = 4096;
  group.name = "default";
  group.parts = &part;
  group.part_count = 1;
  spec.id = "c-test";
  spec.tokens_per_block = 16;
  spec.groups = &group;
  spec.group_count = 1;
  options.socket = "/nonexistent/cenote.sock";

  EXPECT(cenote_abi_version() >> 16 == CENOTE_ABI_MAJOR);
  EXPECT(strcmp(cenote_error_name(CENOTE_NO_SPACE), "no_space") == 0);
  EXPECT(strcmp(cenote_error_name(CENOTE_REMOVAL_PENDING), "removal_pending") == 0);
  EXPECT(strcmp(cenote_error_name(CENOTE_GROUP_LOST), "group_lost") == 0);
  EXPECT(strcmp(cenote_error_name(-1), "unknown") == 0);
  EXPECT(strcmp(cenote_error_name(CENOTE_GROUP_LOST + 1), "unknown") == 0);
  EXPECT(cenote_group_join(NULL, "g", 0, 1, 1000000, 0, NULL) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_agree(NULL, 1, 1, NULL) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_agree_start(NULL, NULL, 0) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_agree_poll(NULL, NULL, 0, 0, NULL) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_group_leave(NULL) == CENOTE_INVALID_ARGUMENT);
  cenote_group_free(NULL);
  EXPECT(cenote_attach(&spec, NULL, &session) == CENOTE_INVALID_ARGUMENT); /* struct_size is missing */
  EXPECT(strstr(cenote_last_error(), "struct_size") != NULL);
  spec.struct_size = sizeof spec;
  options.struct_size = sizeof options;
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_NOT_RUNNING);
  EXPECT(session == NULL);
  options.part = 1; /* of no device */
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_INVALID_ARGUMENT);
  options.part = 0;
  options.device = "gpu";
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_INVALID_ARGUMENT);
  options.device = "sim:0";
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_NOT_RUNNING);
  options.device = "gpu"; /* a client of an earlier version says no more than it knows */
  options.struct_size = offsetof(cenote_options, device);
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_NOT_RUNNING);
  options.struct_size = sizeof options;
  options.device = NULL;
  part.bytes = 0;
  EXPECT(cenote_attach(&spec, &options, &session) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_match_prefix(NULL, keys, 0, &match) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_prefetch_start_with(NULL, keys, 0, NULL, &prefetch) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_prefetch_length(NULL, &length) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_prefetch_stop(NULL) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_prefetch_cancel(NULL) == CENOTE_INVALID_ARGUMENT);
  cenote_prefetch_free(NULL);

  EXPECT(cenote_copy(targets, sources, sizes, 1, NULL) == CENOTE_OK);
  EXPECT(strcmp(to, "pinned") == 0);
  EXPECT(cenote_copy(NULL, sources, sizes, 1, NULL) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_copy(NULL, NULL, NULL, 0, NULL) == CENOTE_OK);
  EXPECT(cenote_copy(targets, sources, sizes, 1, &copying) == CENOTE_INVALID_ARGUMENT); /* struct_size is missing */
  copying.struct_size = sizeof copying;
  copying.block_offset = 1;
  EXPECT(cenote_copy(targets, sources, sizes, 1, &copying) == CENOTE_INVALID_ARGUMENT);
  copying.block_offset = 0;
  EXPECT(cenote_gather(&piece, 1, &index, targets, 1, &copying) == CENOTE_INVALID_ARGUMENT); /* runs of 0 bytes */
  piece.base = from;
  piece.run_bytes = 2;
  piece.runs = 1;
  piece.block_stride = 2;
  EXPECT(cenote_gather(&piece, 1, &index, targets, 1, &copying) == CENOTE_OK);
  EXPECT(strcmp(to, "nnnned") == 0);
  copying.block_offset = 4;
  EXPECT(cenote_gather(&piece, 1, &index, targets, 1, &copying) == CENOTE_OK);
  EXPECT(strcmp(to, "nnnnnn") == 0);
  copying.block_offset = 0;
  EXPECT(cenote_scatter(&piece, 0, &index, sources, 1, &copying) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_scatter(&piece, 1, NULL, sources, 1, &copying) == CENOTE_INVALID_ARGUMENT);

  EXPECT(cenote_device_open("gpu", &device) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_stream_open(NULL, &stream) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_device_open("sim:0", &device) == CENOTE_OK);
  EXPECT(cenote_stream_open(device, &stream) == CENOTE_OK);
  EXPECT(cenote_stream_wrap(device, from, &same) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_stream_wrap(device, cenote_stream_native(stream), &same) == CENOTE_OK);
  copying.stream = stream;
  EXPECT(cenote_copy(targets, sources, sizes, 1, &copying) == CENOTE_OK);
  copying.stream = same;
  copying.block_offset = 1;
  EXPECT(cenote_gather(&piece, 1, &index, targets, 1, &copying) == CENOTE_OK);
  EXPECT(cenote_event_record(same, &event) == CENOTE_OK);
  EXPECT(cenote_stream_wait(stream, event) == CENOTE_OK);
  EXPECT(cenote_event_wait(event, 10000000000u) == CENOTE_OK);
  EXPECT(cenote_event_done(event, &done) == CENOTE_OK && done == 1);
  EXPECT(strcmp(to, "pnnned") == 0);
  EXPECT(cenote_use_device(NULL, device) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_session_device(NULL, &other) == CENOTE_INVALID_ARGUMENT); /* and clears what it was given */
  EXPECT(cenote_release_after(NULL, NULL, 0, stream) == CENOTE_INVALID_ARGUMENT);
  EXPECT(cenote_commit_after(NULL, NULL, 0, stream) == CENOTE_INVALID_ARGUMENT);
  cenote_device_free(device); /* what still needs it keeps it */
  EXPECT(cenote_event_done(event, &done) == CENOTE_OK && done == 1);
  cenote_event_free(event);
  cenote_stream_free(same);
  cenote_stream_free(stream);
  cenote_stream_free(NULL);
  EXPECT(cenote_close(NULL) == CENOTE_INVALID_ARGUMENT);
  cenote_free(NULL);
  return 0;
}
