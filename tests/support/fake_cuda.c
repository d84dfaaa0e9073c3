/* A driver of CUDA without a GPU: carries out on host memory, at once, what device/cuda calls, counts it, and fails
 * when told to. Calls outside of a context are refused, as the driver does. FAKE_CUDA_OLD: one that lacks cuMemCreate;
 * FAKE_CUDA_12: batches as of CUDA 12.8; FAKE_CUDA_NO_BATCH: none.
 */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <stdatomic.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long number;

enum { most_names = 64, most_registered = 1024, granularity = 65536 };

static struct {
  char call[64];
  int count;
  int code;
} names[most_names];
static struct {
  void* first;
  size_t bytes;
} registered[most_registered];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_cuda_kernel kernel;
static void* captured;                         /* a stream */
static atomic_int broken, held, living, calls; /* a device has threads of its own */
static __thread int depth;                     /* of contexts pushed on this thread */
static __thread int capture_mode;              /* 0: global, 2: relaxed */

static int place_of(const char* call) {
  for (int i = 0; i < most_names; ++i) {
    if (names[i].call[0] == '\0') snprintf(names[i].call, sizeof(names[i].call), "%s", call);
    if (strcmp(names[i].call, call) == 0) return i;
  }
  abort();
}

/* Counts a call; not 0: what it must answer. */
static int enter(const char* call, int needs_context) {
  pthread_mutex_lock(&lock);
  const int place = place_of(call);
  names[place].count++;
  calls++;
  int code = names[place].code;
  if (code == 0) code = broken;
  if (code == 0 && needs_context && depth == 0) code = 201;
  if (code == 0 && captured != NULL && capture_mode != 2) code = 900; /* and the capture is lost */
  pthread_mutex_unlock(&lock);
  return code;
}

static int change(int by, int code) {
  pthread_mutex_lock(&lock);
  living += by;
  calls++;
  pthread_mutex_unlock(&lock);
  return code;
}

static int make(void** out, size_t bytes) {
  *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (bytes <= 64) memset(*out, 0, bytes);
  return change(1, 0);
}

static int destroy(void* made) {
  free(made);
  return change(-1, 0);
}

/* ------------------------------------------------------------------------------------------------- virtual time */

enum { most_spans = 16384, most_ranges = 256 };
enum { to_device, to_host, multiprocessors, resources };
static const double capacity[resources] = {1, 1, 132};
static struct {
  double begin, end, units;
} spans[resources][most_spans];
static int span_count[resources];
static fake_cuda_kernel_cost kernel_cost; /* null: no time is kept */
static double thread_time;                /* where the calling thread is */
static int epoch;
static struct {
  const unsigned char* first;
  size_t bytes;
} ranges[most_ranges]; /* device memory */

/* Begins the memory of a stream or an event. */
struct point {
  int epoch;
  double time;
};
static struct point default_stream;

static struct point* point_of(void* object) {
  struct point* const found = object == NULL ? &default_stream : object;
  if (found->epoch != epoch) found->epoch = epoch, found->time = 0;
  return found;
}

static int has_room(int resource, double units, double begin, double end, double* next) {
  double used = units;
  for (int i = 0; i < span_count[resource]; ++i) {
    if (spans[resource][i].begin >= end || spans[resource][i].end <= begin) continue;
    used += spans[resource][i].units;
    if (spans[resource][i].end < *next) *next = spans[resource][i].end;
  }
  return used <= capacity[resource];
}

/* The stream's next work. */
static void take(void* stream, int resource, double units, double duration) {
  struct point* const at = point_of(stream);
  double begin = at->time > thread_time ? at->time : thread_time;
  for (double next = 1e30; !has_room(resource, units, begin, begin + duration, &next); next = 1e30) begin = next;
  if (span_count[resource] == most_spans) abort();
  const int place = span_count[resource]++;
  spans[resource][place].begin = begin;
  spans[resource][place].end = begin + duration;
  spans[resource][place].units = units;
  at->time = begin + duration;
}

static void change_range(const void* first, size_t bytes) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < most_ranges; ++i) {
    if (ranges[i].first != (bytes == 0 ? first : NULL)) continue;
    ranges[i].first = bytes == 0 ? NULL : first;
    ranges[i].bytes = bytes;
    break;
  }
  pthread_mutex_unlock(&lock);
}

int fake_cuda_is_device(const void* address) {
  for (int i = 0; i < most_ranges; ++i) {
    const unsigned char* const at = address;
    if (ranges[i].first != NULL && at >= ranges[i].first && at < ranges[i].first + ranges[i].bytes) return 1;
  }
  return 0;
}

/* 0, or the driver's code for memory that is registered already, or for too much. */
static int pin(void* first, size_t bytes) {
  pthread_mutex_lock(&lock);
  int empty = -1, code = 0;
  for (int i = 0; i < most_registered; ++i) {
    if (registered[i].first == first) code = 712;
    if (registered[i].first == NULL) empty = i;
  }
  if (code == 0 && empty < 0) code = 2;
  if (code == 0) registered[empty].first = first, registered[empty].bytes = bytes;
  pthread_mutex_unlock(&lock);
  return code;
}

static int unpin(const void* first) {
  pthread_mutex_lock(&lock);
  int code = 713;
  for (int i = 0; i < most_registered; ++i) {
    if (registered[i].first != first) continue;
    registered[i].first = NULL;
    code = 0;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

static int is_pinned(const void* address) {
  for (int i = 0; i < most_registered; ++i) {
    const unsigned char *first = registered[i].first, *at = address;
    if (first != NULL && at >= first && at < first + registered[i].bytes) return 1;
  }
  return 0;
}

/* Rows of one call, which costs the thread `price`. The thread itself copies host memory that is not registered. */
static void spend_copy(void* stream, const void* target, const void* source, double bytes, double rows, double price) {
  if (kernel_cost == NULL) return;
  pthread_mutex_lock(&lock);
  thread_time += price;
  const void* const host = fake_cuda_is_device(target) ? source : target;
  if (fake_cuda_is_device(host)) {
    take(stream, multiprocessors, 8, 2000 + bytes * 0.0006);
  } else if (!is_pinned(host)) {
    take(stream, host == source ? to_device : to_host, 1, bytes * 0.11);
    thread_time = point_of(stream)->time;
  } else {
    /* A copy of few rows is too short to hide the start of the next one. */
    const double start = rows > 1 && rows < 16 ? 3000 : 0;
    take(stream, host == source ? to_device : to_host, 1, start + bytes * 0.0183 + rows * 110);
  }
  pthread_mutex_unlock(&lock);
}

static void spend_call(double price) {
  if (kernel_cost == NULL) return;
  pthread_mutex_lock(&lock);
  thread_time += price;
  pthread_mutex_unlock(&lock);
}

void fake_cuda_begin_time(fake_cuda_kernel_cost cost) {
  pthread_mutex_lock(&lock);
  kernel_cost = cost;
  memset(span_count, 0, sizeof(span_count));
  thread_time = 0;
  epoch++;
  pthread_mutex_unlock(&lock);
}
double fake_cuda_thread_time(void) {
  return thread_time;
}
double fake_cuda_stream_time(void* stream) {
  return point_of(stream)->time;
}

/* While time is kept, only that passes, but for tables, from which a kernel's cost is read. */
static void copy_bytes(number target, number source, size_t bytes) {
  if (kernel_cost == NULL || bytes < 32768) memcpy((void*)target, (const void*)source, bytes);
}

#define ENTER(call)                    \
  do {                                 \
    const int code_ = enter(#call, 1); \
    if (code_ != 0) return code_;      \
  } while (0)
#define ENTER_WITHOUT_CONTEXT(call)    \
  do {                                 \
    const int code_ = enter(#call, 0); \
    if (code_ != 0) return code_;      \
  } while (0)

void fake_cuda_reset(void) {
  pthread_mutex_lock(&lock);
  memset(names, 0, sizeof(names));
  kernel = NULL;
  broken = held = 0;
  captured = NULL;
  pthread_mutex_unlock(&lock);
}
void fake_cuda_run_kernels(fake_cuda_kernel run) {
  kernel = run;
}
void fake_cuda_fail(const char* call, int code) {
  pthread_mutex_lock(&lock);
  names[place_of(call)].code = code;
  pthread_mutex_unlock(&lock);
}
void fake_cuda_break(int code) {
  pthread_mutex_lock(&lock);
  broken = code;
  pthread_mutex_unlock(&lock);
}
void fake_cuda_capture(void* stream) {
  captured = stream;
}
void fake_cuda_hold(int on) {
  pthread_mutex_lock(&lock);
  held = on;
  pthread_mutex_unlock(&lock);
}
int fake_cuda_calls(const char* call) {
  pthread_mutex_lock(&lock);
  const int count = names[place_of(call)].count;
  pthread_mutex_unlock(&lock);
  return count;
}
int fake_cuda_all_calls(void) {
  return calls;
}
int fake_cuda_living(void) {
  return living;
}

int cuInit(unsigned flags) {
  ENTER_WITHOUT_CONTEXT(cuInit);
  return flags == 0 ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
  return 0;
}
int cuDeviceGetCount(int* count) {
  ENTER_WITHOUT_CONTEXT(cuDeviceGetCount);
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  ENTER_WITHOUT_CONTEXT(cuDeviceGet);
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  ENTER_WITHOUT_CONTEXT(cuDeviceGetUuid);
  for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(device * 16 + i);
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int device) {
  ENTER_WITHOUT_CONTEXT(cuDeviceGetName);
  snprintf(name, (size_t)bytes, "no GPU, number %d", device);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER_WITHOUT_CONTEXT(cuDeviceGetAttribute);
  (void)attribute, (void)device;
  *value = 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER_WITHOUT_CONTEXT(cuDevicePrimaryCtxRetain);
  (void)device;
  static int primary;
  *context = &primary;
  return change(1, 0);
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return change(-1, 0);
}
int cuCtxPushCurrent_v2(void* context) {
  (void)context;
  depth++;
  calls++;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = NULL;
  depth--;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}
int cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  return 0;
}
int cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  ENTER(cuCtxGetStreamPriorityRange);
  *lowest = 0, *highest = -5;
  return 0;
}
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  (void)flags, (void)priority;
  return make(stream, 64);
}
int cuStreamIsCapturing(void* stream, int* status) {
  ENTER(cuStreamIsCapturing);
  *status = stream != NULL && stream == captured ? 1 : 0;
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  (void)enter("cuStreamDestroy_v2", 1);
  return destroy(stream);
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  (void)flags;
  spend_call(400);
  if (kernel_cost != NULL && point_of(event)->time > point_of(stream)->time)
    point_of(stream)->time = point_of(event)->time;
  return 0;
}
int cuEventCreate(void** event, unsigned flags) {
  ENTER(cuEventCreate);
  (void)flags;
  return make(event, 64);
}
int cuEventDestroy_v2(void* event) {
  (void)enter("cuEventDestroy_v2", 1);
  return destroy(event);
}
int cuEventRecord(void* event, void* stream) {
  ENTER(cuEventRecord);
  spend_call(600);
  if (kernel_cost != NULL) point_of(event)->time = point_of(stream)->time;
  return 0;
}
int cuEventQuery(void* event) {
  ENTER(cuEventQuery);
  (void)event;
  pthread_mutex_lock(&lock);
  const int code = held ? 600 : 0;
  pthread_mutex_unlock(&lock);
  return code;
}
int cuMemcpyAsync(number to, number from, size_t bytes, void* stream) {
  ENTER(cuMemcpyAsync);
  spend_copy(stream, (void*)to, (const void*)from, (double)bytes, 1, 2200);
  copy_bytes(to, from, bytes);
  return 0;
}
/* Rows of one copy lie in one registration of host memory, as the driver wants them. */
static int is_across(const unsigned char* first, size_t bytes) {
  pthread_mutex_lock(&lock);
  int across = 0;
  for (int i = 0; i < most_registered; ++i) {
    const unsigned char* begin = registered[i].first;
    const unsigned char* end = begin + registered[i].bytes;
    if (begin != NULL && first < end && first + bytes > begin && (first < begin || first + bytes > end)) across = 1;
  }
  pthread_mutex_unlock(&lock);
  return across;
}
struct side {
  size_t x, y;
  int type;
  void* host;
  number address;
  void* array;
  size_t pitch;
};
struct rows {
  struct side source, target;
  size_t width, height;
};
int cuMemcpy2DAsync_v2(const struct rows* copy, void* stream) {
  ENTER(cuMemcpy2DAsync_v2);
  const struct side *source = &copy->source, *target = &copy->target;
  if (source->type != 4 || target->type != 4 || source->pitch < copy->width || target->pitch < copy->width) return 1;
  if (is_across((void*)source->address, source->pitch * (copy->height - 1) + copy->width)) return 1;
  if (is_across((void*)target->address, target->pitch * (copy->height - 1) + copy->width)) return 1;
  spend_copy(stream, (void*)target->address, (void*)source->address, (double)(copy->width * copy->height),
             (double)copy->height, 2200);
  for (size_t row = 0; row < copy->height; ++row) {
    copy_bytes(target->address + row * target->pitch, source->address + row * source->pitch, copy->width);
  }
  return 0;
}
#ifndef FAKE_CUDA_NO_BATCH
/* One that fails has carried out the first half. */
static int copy_batch(const char* call, const number* targets, const number* sources, const size_t* bytes, size_t count,
                      const size_t* first, size_t kinds, void* stream) {
  const int code = enter(call, 1);
  if (stream == NULL || kinds != 1 || *first != 0) return 1;
  for (size_t i = 0; i < (code == 0 ? count : count / 2); ++i) {
    copy_bytes(targets[i], sources[i], bytes[i]);
    spend_copy(stream, (void*)targets[i], (const void*)sources[i], (double)bytes[i], 1, 750);
  }
  return code;
}
int cuMemcpyBatchAsync(number* targets, number* sources, size_t* bytes, size_t count, void* attributes, size_t* first,
                       size_t kinds, size_t* failed, void* stream) {
  (void)attributes;
  *failed = count / 2;
  return copy_batch("cuMemcpyBatchAsync", targets, sources, bytes, count, first, kinds, stream);
}
#ifndef FAKE_CUDA_12
int cuMemcpyBatchAsync_v2(const number* targets, const number* sources, const size_t* bytes, size_t count,
                          void* attributes, size_t* first, size_t kinds, void* stream) {
  (void)attributes;
  return copy_batch("cuMemcpyBatchAsync_v2", targets, sources, bytes, count, first, kinds, stream);
}
#endif
#endif
int cuMemsetD8_v2(number to, unsigned char value, size_t bytes) {
  ENTER(cuMemsetD8_v2);
  memset((void*)to, value, bytes);
  return 0;
}
int cuMemAlloc_v2(number* out, size_t bytes) {
  ENTER(cuMemAlloc_v2);
  const int code = make((void**)out, bytes);
  change_range((void*)*out, bytes);
  return code;
}
int cuMemFree_v2(number made) {
  (void)enter("cuMemFree_v2", 1);
  change_range((void*)made, 0);
  return destroy((void*)made);
}
int cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  ENTER(cuMemHostAlloc);
  (void)flags;
  const int code = make(out, bytes);
  (void)pin(*out, bytes);
  return code;
}
int cuMemFreeHost(void* made) {
  (void)enter("cuMemFreeHost", 1);
  (void)unpin(made);
  return destroy(made);
}
int cuMemHostRegister_v2(void* first, size_t bytes, unsigned flags) {
  ENTER(cuMemHostRegister_v2);
  (void)flags;
  const int code = pin(first, bytes);
  spend_call((double)bytes * 0.045);
  return code == 0 ? change(1, 0) : code;
}
int cuMemHostUnregister(void* first) {
  (void)enter("cuMemHostUnregister", 1);
  const int code = unpin(first);
  return code == 0 ? change(-1, 0) : code;
}
int cuMemGetAllocationGranularity(size_t* out, const void* properties, int option) {
  ENTER(cuMemGetAllocationGranularity);
  (void)properties, (void)option;
  *out = granularity;
  return 0;
}
#ifndef FAKE_CUDA_OLD
int cuMemCreate(number* handle, size_t bytes, const void* properties, number flags) {
  ENTER(cuMemCreate);
  (void)properties, (void)flags;
  if (bytes % granularity != 0) return 1;
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return 304;
  *handle = (number)fd;
  return change(1, 0);
}
#endif
int cuMemRelease(number handle) {
  (void)enter("cuMemRelease", 1);
  close((int)handle);
  return change(-1, 0);
}
int cuMemAddressReserve(number* out, size_t bytes, size_t alignment, number wanted, number flags) {
  ENTER(cuMemAddressReserve);
  (void)alignment, (void)wanted, (void)flags;
  void* at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 2;
  *out = (number)at;
  return change(1, 0);
}
int cuMemAddressFree(number at, size_t bytes) {
  (void)enter("cuMemAddressFree", 1);
  munmap((void*)at, bytes);
  return change(-1, 0);
}
int cuMemMap(number at, size_t bytes, size_t offset, number handle, number flags) {
  ENTER(cuMemMap);
  (void)flags;
  void* mapped = mmap((void*)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
  if (mapped != MAP_FAILED) change_range((void*)at, bytes);
  return mapped == MAP_FAILED ? 1 : change(1, 0);
}
int cuMemUnmap(number at, size_t bytes) {
  (void)enter("cuMemUnmap", 1);
  change_range((void*)at, 0);
  (void)mmap((void*)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return change(-1, 0);
}
int cuMemSetAccess(number at, size_t bytes, const void* access, size_t count) {
  ENTER(cuMemSetAccess);
  (void)access, (void)count;
  return mprotect((void*)at, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : 1;
}
int cuMemExportToShareableHandle(void* out, number handle, int type, number flags) {
  ENTER(cuMemExportToShareableHandle);
  (void)flags;
  if (type != 1) return 1;
  *(int*)out = dup((int)handle);
  return 0;
}
int cuMemImportFromShareableHandle(number* handle, void* descriptor, int type) {
  ENTER(cuMemImportFromShareableHandle);
  const int fd = dup((int)(intptr_t)descriptor);
  if (type != 1 || fd < 0) return 1;
  *handle = (number)fd;
  return change(1, 0);
}
int cuModuleLoadData(void** module, const void* image) {
  ENTER(cuModuleLoadData);
  (void)image;
  return make(module, 64);
}
int cuModuleUnload(void* module) {
  (void)enter("cuModuleUnload", 1);
  return destroy(module);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(cuModuleGetFunction);
  (void)module;
  *function = (void*)(uintptr_t)name; /* the caller's are literals */
  return 0;
}
int cuLaunchKernel(void* function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** arguments,
                   void** extra) {
  ENTER(cuLaunchKernel);
  (void)shared, (void)extra;
  if (groups_x == 0 || groups_y * groups_z * threads_y * threads_z != 1 || threads_x > 1024) return 1;
  if (kernel_cost != NULL) {
    const struct fake_cuda_cost cost = kernel_cost(function, groups_x, arguments[0]);
    pthread_mutex_lock(&lock);
    thread_time += 2500;
    take(stream, multiprocessors, cost.multiprocessors, cost.time);
    pthread_mutex_unlock(&lock);
  }
  if (kernel != NULL) kernel(function, groups_x, threads_x, arguments[0]);
  return 0;
}
