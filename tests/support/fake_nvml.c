/* NVML without a driver: GPU by GPU, a line each, the file $FAKE_NVML names the processes that compute there. A line
 * may be a code instead: "error 15". No file: nvmlInit fails. FAKE_NVML_OLD: one that cannot list processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { success = 0, not_initialized = 1, not_found = 6, insufficient_size = 7, no_driver = 9, most_devices = 8 };

struct process {
  unsigned pid;
  unsigned long long used_bytes;
};

static int started;

/* The line of a GPU; 0: there is none. */
static int line_of(unsigned device, char* out, size_t size) {
  const char* path = getenv("FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return 0;
  int found = 1;
  for (unsigned i = 0; found && i <= device; ++i) found = fgets(out, (int)size, file) != NULL;
  fclose(file);
  return found;
}

int nvmlInit_v2(void) {
  char line[4096];
  if (!line_of(0, line, sizeof(line))) return no_driver;
  ++started;
  return success;
}

int nvmlShutdown(void) {
  if (started == 0) return not_initialized;
  --started;
  return success;
}

const char* nvmlErrorString(int code) {
  return code == no_driver ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  char line[4096];
  if (started == 0) return not_initialized;
  for (*count = 0; *count < most_devices && line_of(*count, line, sizeof(line)); ++*count) continue;
  return success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  char line[4096];
  if (started == 0) return not_initialized;
  if (index >= most_devices || !line_of(index, line, sizeof(line))) return not_found;
  *device = (char*)0 + index + 1;
  return success;
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, struct process* out) {
  char line[4096];
  unsigned found = 0;
  if (started == 0) return not_initialized;
  if (!line_of((unsigned)((char*)device - (char*)0) - 1, line, sizeof(line))) return not_found;
  if (strncmp(line, "error ", 6) == 0) return atoi(line + 6);
  for (char *rest = line, *word; (word = strtok_r(rest, " \n", &rest)) != NULL; ++found) {
    if (found < *count) out[found] = (struct process){(unsigned)strtoul(word, NULL, 10), 1};
  }
  const int fits = found <= *count;
  *count = found;
  return fits ? success : insufficient_size;
}
#endif
