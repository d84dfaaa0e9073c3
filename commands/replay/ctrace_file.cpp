#include "commands/replay/ctrace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>

#include "commands/replay/sizes.hpp"
#include "core/huge_vector.hpp"
#include "core/unique_fd.hpp"
#include "simulation/formats/ctrace.hpp"

namespace cenote::replay {

namespace {

result<huge_vector<std::byte>> read_bytes(const std::string& path, std::uint64_t room) {
  const unique_fd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return fail_errno("read", path);
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) return fail_errno("fstat", path);
  if (static_cast<std::uint64_t>(status.st_size) > room) {
    return fail(error_code::limit_exceeded, fmt::format("{} has {} bytes, more than the memory that is left ({})", path,
                                                        static_cast<std::uint64_t>(status.st_size), room));
  }
  huge_vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::pread(opened.get(), bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read", path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

result<void> check_ctrace_reading(const std::string& path, const trace_reading& reading) {
  if (!reading.format.empty() && reading.format != "auto" && reading.format != own_format) {
    return fail(error_code::invalid_argument,
                fmt::format("{} is a .ctrace file: --format {} cannot read it; leave it out, or give {}", path,
                            reading.format, own_format));
  }
  if (reading.unit != time_unit::automatic) {
    return fail(error_code::invalid_argument,
                fmt::format("{} is a .ctrace file, whose times are milliseconds: leave --time-unit out", path));
  }
  if (reading.sharing == formats::key_sharing::among_instances) {
    return fail(error_code::invalid_argument,
                fmt::format("{} is a .ctrace file, which has numbers in place of keys: use --merge-instances when the "
                            "log is converted",
                            path));
  }
  return {};
}

result<void> check_ctrace_block_tokens(const std::string& path, const trace_reading& reading,
                                       std::uint64_t block_tokens) {
  if (reading.block_tokens == 0 || reading.block_tokens == block_tokens) return {};
  return fail(error_code::invalid_argument,
              fmt::format("{} has blocks of {} tokens, not of {}: leave --block-tokens out, or convert the log again",
                          path, block_tokens, reading.block_tokens));
}

bool is_ctrace_file(const std::string& path) {
  std::error_code unknown;  // a pipe would lose what is read of it here
  if (!std::filesystem::is_regular_file(path, unknown)) return false;
  const unique_fd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return false;
  std::array<std::byte, 8> head{};
  return ::pread(opened.get(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()) &&
         formats::ctrace::is_begun(head);
}

result<read_trace> read_ctrace_file(const std::string& path, const trace_reading& reading) {
  if (auto ok = check_ctrace_reading(path, reading); !ok) return std::unexpected(ok.error());
  const std::uint64_t room = room_for_trace();
  const auto bytes = read_bytes(path, room);
  if (!bytes) return std::unexpected(bytes.error());
  auto decoded = formats::ctrace::decode(*bytes, {.full_blocks = reading.full_blocks,
                                                  .limit = reading.most,
                                                  .most_bytes = room - std::min<std::uint64_t>(room, bytes->size())});
  if (!decoded) return std::unexpected(decoded.error().in(path));
  if (auto ok = check_ctrace_block_tokens(path, reading, decoded->requests.block_tokens()); !ok)
    return std::unexpected(ok.error());
  if (decoded->requests.requests().empty()) {
    return fail(error_code::malformed, fmt::format("{} holds no request", path));
  }
  return read_trace{.format = own_format,
                    .requests = std::move(decoded->requests),
                    .instances = std::move(decoded->facts.instances),
                    .warnings = {},
                    .lines = decoded->facts.lines,
                    .left_out = decoded->facts.left_out,
                    .full_blocks = decoded->facts.full_blocks,
                    .anonymised = decoded->facts.anonymised,
                    .seed = decoded->facts.seed};
}

}  // namespace cenote::replay
