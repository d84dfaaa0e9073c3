// Blocks whose memory a tier below reads or fills.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tiers/blocks/state.hpp"
#include "tiers/blocks/window_shares.hpp"
#include "tiers/transfer.hpp"

namespace cenote::blocks {

/// A block on its way, one way or the other.
struct moving_block {
  instance* owner = nullptr;
  memory::block_ref ref;
  std::uint64_t serial = 0;  ///< the transfer's token; 0: it gets one
  boot_time touched{};       ///< down: the last use of the block
  boot_time start{};         ///< up
  std::uint64_t stride = 0;
  edge_number edge = 0;
  bool up = false;
  bool leaves = false;    ///< down: it goes when it is written; it is in no policy meanwhile
  bool unwanted = false;  ///< up: somebody stored or removed the key meanwhile
  edge_set asked{};       ///< up: tiers below that had not got it
};

/// Which blocks are on their way to and from the tiers below, how many bytes of them, and what is to be sent to each.
/// Also the blocks that a dead worker was bringing up.
class transfer_table {
 public:
  explicit transfer_table(state& state) noexcept : state_(state), next_serial_(state.options.first_transfer) {}

  [[nodiscard]] bool is_moving(const slab& home, memory::block_ref ref) const noexcept {
    return !moving_.empty() && moving_.contains(home.what.first_record + ref.block());
  }
  /// True when the block is in its pool's policy: false for a kept one, and for one that leaves when it is written.
  [[nodiscard]] bool in_policy(std::uint32_t record) const noexcept;
  /// Whether the window has room for a block of the pool: users, their instance groups and the instances share it.
  [[nodiscard]] bool may_write(edge_number edge, const pool& pool);
  /// Whether the window has room. The planner of prefetches asks for loads in turns of users
  /// (tiers/prefetch/load_turns).
  [[nodiscard]] bool may_load(edge_number edge, const pool& into) const noexcept;

  /// Returns the token. Tokens are 64-bit numbers in the order of the transfers: at a billion a second they last for
  /// centuries. A transfer that goes on elsewhere has its token already.
  std::uint64_t begin_moving(std::uint32_t record, moving_block what);
  /// Ends a transfer. Its record and what was moved; nothing when there is no such transfer.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, moving_block>> take_moving(std::uint64_t token);
  /// A block that was to leave stays.
  void stay(std::uint32_t record) noexcept;
  /// Somebody stored or removed the key: what comes up is not wanted.
  void abandon_load(instance& instance, const block_key& key);
  /// Of a block that is on its way.
  [[nodiscard]] std::uint64_t serial_of(std::uint32_t record) const { return moving_.at(record).serial; }
  [[nodiscard]] edge_number edge_of(std::uint32_t record) const { return moving_.at(record).edge; }
  [[nodiscard]] std::uint32_t record_moving(std::uint64_t token) const { return moving_record_.at(token); }

  void queue_write(edge_number edge, transfer what) { writes_[edge].push_back(std::move(what)); }
  void queue_load(edge_number edge, transfer what) { loads_[edge].push_back(std::move(what)); }
  [[nodiscard]] std::vector<transfer> take_writes(edge_number edge) noexcept {
    return std::exchange(writes_[edge], {});
  }
  [[nodiscard]] std::vector<transfer> take_loads(edge_number edge) noexcept { return std::exchange(loads_[edge], {}); }

  [[nodiscard]] std::uint64_t writing_bytes(edge_number edge) const noexcept { return writing_[edge].bytes(); }
  /// To and from all tiers below.
  [[nodiscard]] std::uint64_t writing_bytes() const noexcept;
  [[nodiscard]] std::uint64_t loading_bytes() const noexcept;
  /// … of those, of what goes when it is written.
  [[nodiscard]] std::uint64_t leaving_bytes() const noexcept { return leaving_bytes_; }

  /// Blocks that a dead worker was loading: its reads may still write to their memory.
  [[nodiscard]] std::vector<std::pair<instance*, memory::block_ref>>& recovered() noexcept { return recovered_; }
  [[nodiscard]] const std::vector<std::pair<instance*, memory::block_ref>>& recovered() const noexcept {
    return recovered_;
  }
  /// It cannot be known when reads from this tier end: memory that they may write to is not used again.
  void abandon_recovered(edge_number edge) noexcept { lost_[edge] = true; }
  [[nodiscard]] bool is_lost(const slab& home, memory::block_ref ref) const noexcept;
  [[nodiscard]] bool any_lost() const noexcept;

 private:
  state& state_;
  std::unordered_map<std::uint32_t, moving_block> moving_;          ///< by record
  std::unordered_map<std::uint64_t, std::uint32_t> moving_record_;  ///< by serial
  std::uint64_t next_serial_;
  std::array<window_shares, max_edges> writing_;
  std::array<std::uint64_t, max_edges> loading_{};
  std::uint64_t leaving_bytes_ = 0;
  std::array<std::vector<transfer>, max_edges> writes_;
  std::array<std::vector<transfer>, max_edges> loads_;
  std::vector<std::pair<instance*, memory::block_ref>> recovered_;
  std::array<bool, max_edges> lost_{};
};

}  // namespace cenote::blocks
