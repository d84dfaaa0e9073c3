#include "transport/local/registry.hpp"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>

namespace cenote::local {

result<void> registry::put(registry_entry entry) {
  if (entry.kind == entry_kind{}) return fail(error_code::invalid_argument, "a registry entry needs a kind");
  if (entry.meta.size() > max_entry_meta || entry.fds.size() > max_entry_fds) {
    return fail(error_code::limit_exceeded, "a registry entry holds at most 32 KiB and 8 descriptors, not " +
                                                std::to_string(entry.meta.size()) + " bytes and " +
                                                std::to_string(entry.fds.size()));
  }
  const key where{entry.kind, entry.id};
  if (entries_.size() >= max_entries && !entries_.contains(where)) {
    return fail(error_code::limit_exceeded, "the keeper holds at most " + std::to_string(max_entries) + " entries");
  }
  entries_.insert_or_assign(where, std::move(entry));
  return {};
}

bool registry::drop(entry_kind kind, std::uint64_t id) noexcept {
  return entries_.erase(key{kind, id}) != 0;
}

result<std::pair<unique_fd, unique_fd>> make_link() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return fail_errno("socketpair");
  }
  return std::pair(unique_fd(ends[0]), unique_fd(ends[1]));
}

result<bool> try_send_link(int fd, link_header header, std::span<const std::byte> payload, std::span<const int> fds) {
  header.size = static_cast<std::uint32_t>(payload.size());
  header.fds = static_cast<std::uint16_t>(fds.size());
  return detail::try_send_packet(fd, std::as_bytes(std::span(&header, 1)), payload, fds);
}

result<std::optional<link_packet>> try_receive_link(int fd) {
  auto got = detail::try_receive_packet(fd);
  if (!got) return std::unexpected(std::move(got.error()));
  if (!*got) return std::nullopt;
  auto& bytes = (*got)->bytes;
  link_packet out;
  if (bytes.size() < sizeof out.header) return fail(error_code::malformed, "a packet without a header");
  std::memcpy(&out.header, bytes.data(), sizeof out.header);
  if (out.header.magic != link_magic) return fail(error_code::malformed, "a packet with another magic number");
  if (out.header.version != link_version) {
    return fail(error_code::layout_mismatch, "the keeper's link has version " + std::to_string(out.header.version) +
                                                 ", this side " + std::to_string(link_version));
  }
  if (out.header.size != bytes.size() - sizeof out.header) {
    return fail(error_code::malformed, "a packet's size does not match its header");
  }
  if (out.header.fds != (*got)->fds.size()) {
    return fail(error_code::limit_exceeded, "descriptors were lost on the way: raise the limit of open files");
  }
  bytes.erase(bytes.begin(), bytes.begin() + sizeof out.header);
  out.payload = std::move(bytes);
  out.fds = std::move((*got)->fds);
  return out;
}

std::vector<int> numbers_of(std::span<const unique_fd> fds) {
  std::vector<int> numbers;
  numbers.reserve(fds.size());
  for (const auto& fd : fds) numbers.push_back(fd.get());
  return numbers;
}

}  // namespace cenote::local
