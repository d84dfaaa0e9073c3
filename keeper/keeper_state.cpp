#include "keeper/keeper_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/byte_io.hpp"

namespace cenote {

namespace {

constexpr std::uint64_t state_magic = 0x3152504b45544e43;  // "CNTEKPR1"
constexpr std::size_t size_offset = 16;
constexpr std::size_t fixed_prefix = 24;
constexpr off_t largest_state = off_t{4} << 30;

std::int64_t to_nanoseconds(std::chrono::system_clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

std::vector<int> registry_descriptors(const local::registry& entries) {
  std::vector<int> numbers;
  for (const auto& [key, entry] : entries.entries()) {
    for (const auto& fd : entry.fds) numbers.push_back(fd.get());
  }
  return numbers;
}

void write_entries(byte_writer& out, const local::registry& entries) {
  out.put(static_cast<std::uint32_t>(entries.size()));
  for (const auto& [key, entry] : entries.entries()) {
    out.put(static_cast<std::uint8_t>(entry.kind));
    out.put(entry.id);
    out.put_bytes(entry.meta);
    out.put(static_cast<std::uint32_t>(entry.fds.size()));
  }
}

// The entries take their descriptors from `fds` in order.
result<local::registry> read_entries(byte_reader& reader, std::vector<unique_fd>& fds) {
  local::registry out;
  std::size_t taken = 0;
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    local::registry_entry entry;
    entry.kind = static_cast<local::entry_kind>(reader.get<std::uint8_t>());
    entry.id = reader.get<std::uint64_t>();
    const auto meta = reader.get_bytes();
    entry.meta.assign(meta.begin(), meta.end());
    const auto wanted = reader.get<std::uint32_t>();
    if (wanted > fds.size() - taken) return fail(error_code::malformed, "descriptors are missing");
    for (std::uint32_t n = 0; n < wanted; ++n) entry.fds.push_back(std::move(fds[taken++]));
    if (auto put = out.put(std::move(entry)); !put) return std::unexpected(std::move(put.error()));
  }
  if (!reader.ok() || taken != fds.size()) return fail(error_code::malformed, "the registry is cut short");
  return out;
}

// A number becomes an owner only if it is open, not a standard stream, and not claimed twice.
std::optional<unique_fd> adopt(int number, std::set<int>& claimed) {
  if (number <= STDERR_FILENO || !claimed.insert(number).second) return std::nullopt;
  if (::fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return std::nullopt;
  return unique_fd(number);
}

result<std::vector<std::byte>> read_whole(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("fstat");
  if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(fixed_prefix) || info.st_size > largest_state) {
    return fail(error_code::malformed, "this is no keeper's state");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const auto got = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno("pread", "keeper's state");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

result<void> write_whole(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail_errno("write", "keeper's state");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

}  // namespace

result<unique_fd> save_keeper_state(const keeper_state& state, std::uint32_t version) {
  byte_writer out;
  out.put(state_magic);
  out.put(version);
  out.put(std::uint32_t{0});
  out.put(std::uint64_t{0});  // total size, known at the end
  out.put(state.listener.get());
  out.put(state.lock.get());
  out.put(state.epoch);
  out.put(to_nanoseconds(state.node_started));
  out.put(state.restarts);
  out.put(static_cast<std::uint32_t>(state.ever_ready));
  out.put(state.socket_device);
  out.put(state.socket_inode);
  const auto numbers = registry_descriptors(state.entries);
  out.put(static_cast<std::uint32_t>(numbers.size()));
  for (const int number : numbers) out.put(number);
  write_entries(out, state.entries);
  auto bytes = std::move(out).take();
  const auto total = static_cast<std::uint64_t>(bytes.size());
  std::memcpy(bytes.data() + size_offset, &total, sizeof total);

  unique_fd fd(::memfd_create("cenote-keeper-state", MFD_CLOEXEC));
  if (!fd) return fail_errno("memfd_create", "keeper's state");
  if (auto written = write_whole(fd.get(), bytes); !written) return std::unexpected(std::move(written.error()));
  return fd;
}

result<resumed_state> load_keeper_state(int fd) {
  const auto bytes = read_whole(fd);
  if (!bytes) return std::unexpected(bytes.error());
  byte_reader in(*bytes);
  const auto magic = in.get<std::uint64_t>();
  const auto version = in.get<std::uint32_t>();
  [[maybe_unused]] const auto spare = in.get<std::uint32_t>();
  if (magic != state_magic || in.get<std::uint64_t>() != bytes->size()) {
    return fail(error_code::malformed, "this is no keeper's state, or it is cut short");
  }
  std::set<int> claimed{fd};
  auto listener = adopt(in.get<int>(), claimed);
  auto lock = adopt(in.get<int>(), claimed);
  if (!listener || !lock) return fail(error_code::malformed, "the keeper's state names no listening socket or lock");
  resumed_state out;
  out.state.listener = std::move(*listener);
  out.state.lock = std::move(*lock);
  out.state.epoch = in.get<std::uint64_t>();
  out.state.node_started =
      std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(in.get<std::int64_t>())));
  out.state.restarts = in.get<std::uint32_t>();
  out.state.ever_ready = in.get<std::uint32_t>() != 0;
  out.state.socket_device = in.get<std::uint64_t>();
  out.state.socket_inode = in.get<std::uint64_t>();
  std::vector<unique_fd> fds;
  bool all_there = true;
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    auto owned = adopt(in.get<int>(), claimed);
    all_there = all_there && owned;
    if (owned) fds.push_back(std::move(*owned));
  }
  out.cold = true;
  if (version != keeper_state_version || !all_there) return out;
  if (auto entries = read_entries(in, fds)) {
    out.state.entries = std::move(*entries);
    out.cold = false;
  }
  return out;
}

void keep_across_exec(const keeper_state& state, bool keep) noexcept {
  const int flag = keep ? 0 : FD_CLOEXEC;
  ::fcntl(state.listener.get(), F_SETFD, flag);
  ::fcntl(state.lock.get(), F_SETFD, flag);
  for (const auto& [key, entry] : state.entries.entries()) {
    for (const auto& fd : entry.fds) ::fcntl(fd.get(), F_SETFD, flag);
  }
}

}  // namespace cenote
