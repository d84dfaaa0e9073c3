// What a GPU may do after its engine was killed, by a process that shares the engine's memory: it writes into a block
// that it was given before. Loaded by tests/processes/test_devices.py.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace {

constexpr std::size_t stack_bytes = 64 << 10;

struct order {
  std::uint64_t bytes;
  std::uint64_t count;
  const std::uint64_t* blocks;
  int told;
};

/// No library here: the process that made this one is dead by then, with the locks of its libraries.
int write_late(void* given) {
  const order what = *static_cast<const order*>(given);
  ::syscall(SYS_setsid);
  char byte = 0;
  if (::syscall(SYS_read, what.told, &byte, 1) != 1) ::syscall(SYS_exit, 1);
  for (std::uint64_t i = 0; i < what.count; ++i) {
    auto* const block = reinterpret_cast<volatile std::uint8_t*>(what.blocks[i]);
    for (std::uint64_t at = 0; at < what.bytes; ++at) block[at] = 0xee;
  }
  ::syscall(SYS_exit, 0);
  return 0;
}

}  // namespace

/// Starts it; returns its process, or -1. It waits for a byte on the descriptor `told`, then writes 0xee into `count`
/// blocks of `bytes` bytes and ends. `blocks` must live as long as the caller.
extern "C" int start_late_writer(const std::uint64_t* blocks, std::uint64_t count, std::uint64_t bytes, int told) {
  alignas(64) static std::array<std::byte, stack_bytes> stack;
  static order what;
  what = {bytes, count, blocks, told};
  return ::clone(write_late, stack.data() + stack.size(), CLONE_VM | SIGCHLD, &what);
}
