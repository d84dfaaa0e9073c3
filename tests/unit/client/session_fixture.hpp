// A whole session against a node of two hundred lines on a thread of the test.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "client/session.hpp"
#include "tests/support/local_owner.hpp"

namespace cenote::testing {

inline constexpr std::uint64_t part_bytes = 4096;

template <class T>
T must(result<T> outcome) {
  if (!outcome) throw std::runtime_error(outcome.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*outcome);
}

inline memory::segment mapped_again(const memory::segment& segment, memory::access mode) {
  return must(memory::segment::map(must(segment.fd().duplicate()), segment.size(), mode));
}

inline memory::shared_file opened_again(const memory::shared_file& file) {
  return must(memory::shared_file::adopt(must(file.fd().duplicate()), file.size()));
}

/// `node_device` and `home`: where the blocks lie, as the node and as the session have it open; null: host memory.
/// `link`: the session's socket, in place of the one that the node serves.
struct session_fixture {
  explicit session_fixture(std::uint32_t blocks = 128, std::uint32_t pins = 64, std::uint64_t parts = 1,
                           std::chrono::milliseconds deadline = std::chrono::seconds(60),
                           const std::string& socket = "/nonexistent/cenote.sock", device* node_device = nullptr,
                           std::shared_ptr<device> home = nullptr,
                           std::chrono::milliseconds check_interval = std::chrono::milliseconds(100),
                           unique_fd link = {})
      : owner(blocks, parts * part_bytes, pins, node_device), node(owner, (std::uint64_t{1} << parts) - 1) {
    client::session_options options;
    options.deadline = deadline;
    options.check_interval = check_interval;
    options.socket = socket;
    options.spec.id = "test";
    options.spec.tokens_per_block = 16;
    group_spec group{.name = "default", .parts = {}};
    for (std::uint64_t i = 0; i < parts; ++i) group.parts.push_back({"rank" + std::to_string(i), part_bytes});
    options.spec.groups.push_back(std::move(group));
    client::attachment parts_of_session;
    parts_of_session.socket = link ? std::move(link) : node.take_client_socket();
    parts_of_session.ids = {.session = 1, .secret = 2, .worker_epoch = 1, .pin_slots = pins};
    parts_of_session.submit_bell = node.submit_bell();
    parts_of_session.complete_bell = node.complete_bell();
    parts_of_session.session = mapped_again(owner.session_segment(), memory::access::read_write);
    parts_of_session.index =
        must(memory::index_memory::open(opened_again(owner.index_file()), memory::access::read_only));
    parts_of_session.versions =
        must(memory::version_table::open(opened_again(owner.versions().file()), memory::access::read_only));
    parts_of_session.session.keep_from_children();
    session.reset(
        std::make_unique<client::session>(std::move(parts_of_session), std::move(options), std::move(home)).release());
  }

  /// Waits for what a thread does soon.
  template <class Condition>
  static bool comes(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  local_owner owner;
  local_node node;
  client::session_ptr session;
};

/// Bytes that derive from the key's number.
inline std::vector<std::byte> content(std::uint64_t first, std::size_t count, std::uint64_t bytes = part_bytes) {
  std::vector<std::byte> out(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::memset(out.data() + i * bytes, static_cast<int>((first + i) * 31 % 251), bytes);
  }
  return out;
}

inline client::buffers run_of(std::vector<std::byte>& bytes, std::size_t count) {
  return {bytes.data(), bytes.size() / count, bytes.size() / count, count};
}

inline error_code code_of(const result<void>& outcome) {
  return outcome ? error_code::ok : outcome.error().code();
}
template <class T>
error_code code_of(const result<T>& outcome) {
  return outcome ? error_code::ok : outcome.error().code();
}

}  // namespace cenote::testing
