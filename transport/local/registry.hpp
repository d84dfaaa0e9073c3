// What the keeper holds for the worker: descriptors with a few bytes of description, by kind and id.
// And the packets that keeper and worker exchange over their private SEQPACKET socket pair:
//
//   0       4         6     8         9      10      12         16   24     28
//   | magic | version | fds | message | kind | spare | sequence | id | size | spare | payload (size bytes)
//
// Worker to keeper: put, drop, ready, ask_upgrade, ask_listener, fatal, alive; each but the last two is answered by ack
// or refused with its sequence. Ask_listener has the number (`id`) of the listening socket that the worker uses; the
// ack has that of the present one, and its descriptor if it is another. Keeper to worker, once at the start: handover
// (payload: begin_handover; descriptor: the listening socket), an `entry` for each registry entry in order of (kind,
// id), handover_end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/socket.hpp"

namespace cenote::local {

/// What an entry describes. The keeper never looks inside: it only keeps the order of the numbers, so that a worker
/// sees records before instances, instances before their slabs, and sessions last.
enum class entry_kind : std::uint8_t {
  records = 1,        ///< the node-wide segment of block records
  instance = 2,       ///< an instance: its spec; index and version table
  slab = 3,           ///< one slab
  session = 4,        ///< one session: its memory, doorbells, pidfd
  node = 5,           ///< anything else that must outlive a worker
  configuration = 6,  ///< what the node runs with: one memory file, see config::running_text()
  tier_memory = 7,    ///< memory of a lower tier that outlives the worker, by the tier's name for it
  reserve = 8,        ///< memory for a slab that is not one yet
};

inline constexpr std::size_t max_entry_meta = std::size_t{32} * 1024;
inline constexpr std::size_t max_entry_fds = 8;
inline constexpr std::size_t max_entries = std::size_t{64} * 1024;

/// One thing that survives the worker. `meta` is the worker's own encoding, with its own version in it.
struct registry_entry {
  entry_kind kind{};
  std::uint64_t id = 0;
  std::vector<std::byte> meta;
  std::vector<unique_fd> fds;
};

/// The entries by (kind, id). Not thread-safe: the keeper has one thread.
class registry {
 public:
  using key = std::pair<entry_kind, std::uint64_t>;

  /// Adds the entry, or replaces the one with its kind and id (descriptors too).
  /// Errors: limit_exceeded (meta, descriptors, number of entries), invalid_argument (kind 0).
  [[nodiscard]] result<void> put(registry_entry entry);

  /// Forgets an entry and closes its descriptors; false if there was none.
  bool drop(entry_kind kind, std::uint64_t id) noexcept;

  void clear() noexcept { entries_.clear(); }

  [[nodiscard]] const std::map<key, registry_entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  std::map<key, registry_entry> entries_;
};

enum class link_message : std::uint8_t {
  handover = 1,
  entry = 2,
  handover_end = 3,
  put = 4,
  drop = 5,
  ready = 6,
  ask_upgrade = 7,
  fatal = 8,
  ack = 9,
  refused = 10,  ///< payload: encode_failure
  alive = 11,    ///< u64 milliseconds of silence, text: whose; not answered
  ask_listener = 12,
};

inline constexpr std::uint32_t link_magic = 0x4c4b4e43;  // "CNKL"
inline constexpr std::uint16_t link_version = 1;

struct link_header {
  std::uint32_t magic = link_magic;
  std::uint16_t version = link_version;
  std::uint16_t fds = 0;
  link_message message{};
  entry_kind kind{};
  std::uint16_t spare = 0;
  std::uint32_t sequence = 0;
  std::uint64_t id = 0;
  std::uint32_t size = 0;
  std::uint32_t spare2 = 0;
};
static_assert(sizeof(link_header) == 32);

struct link_packet {
  link_header header;
  std::vector<std::byte> payload;
  std::vector<unique_fd> fds;
};

/// The two ends of a new link, close-on-exec, non-blocking.
[[nodiscard]] result<std::pair<unique_fd, unique_fd>> make_link();

/// Sends one packet, false when the queue is full. Sizes in the header are set here. Errors: closed, system.
[[nodiscard]] result<bool> try_send_link(int fd, link_header header, std::span<const std::byte> payload,
                                         std::span<const int> fds);

/// The waiting packet, checked, or nothing. Errors: closed, malformed, layout_mismatch (another version),
/// limit_exceeded (descriptors were lost because this process is out of them), system.
[[nodiscard]] result<std::optional<link_packet>> try_receive_link(int fd);

/// The raw numbers of owned descriptors, for sending.
[[nodiscard]] std::vector<int> numbers_of(std::span<const unique_fd> fds);

}  // namespace cenote::local
