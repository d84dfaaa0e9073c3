// Blocks whose bytes are not those of their sums: which copies are checked for that, and whose blocks they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/running_checksum.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class block_states;

/// Checks the copy here of a block of which another node got wrong bytes, and drops it if it is wrong. A block is read
/// for that alone, once for each such report, in pieces, so that no turn takes long. A wrong block counts against the
/// session that stored it, whose number its record has anyway, and against the account of its instance.
///
/// Blocks without a sum, blocks that are not here any more and reports beyond the bounds are not checked. A wrong
/// block that only a disk has counts against no session: the disk may have altered it.
class sum_checks {
 public:
  static constexpr std::uint32_t most_wrong = 4;  ///< blocks of a session within `window`: then it ends
  static constexpr tenths window = std::chrono::minutes(10);
  static constexpr std::size_t most_waiting = 64;           ///< blocks
  static constexpr std::size_t most_of_instance = 8;        ///< … of that, of one instance
  static constexpr std::uint64_t piece_bytes = 1U << 20U;   ///< of a step
  static constexpr tenths pause = std::chrono::seconds(1);  ///< of an instance, after a copy that was right

  sum_checks(state& state, block_states& blocks) noexcept : state_(state), blocks_(blocks) {}

  /// Has the copy checked. False: it is not.
  bool add(const slab& home, memory::block_ref ref, boot_time now);
  [[nodiscard]] bool is_idle() const noexcept { return waiting_.empty(); }
  /// One step. A block that was wrong: it is gone here, and is to go below.
  [[nodiscard]] std::optional<removal> step(boot_time now);
  /// Counts a wrong block, which the caller drops.
  void count_wrong(const instance& instance, const memory::block_record& record, boot_time now);
  /// Those that became too many since the last call.
  [[nodiscard]] std::vector<wrong_session> take_sessions() noexcept;

 private:
  struct waiting_block {
    instance_number instance = 0;
    memory::block_ref ref;
    std::uint64_t word = 0;  ///< of its record: another one is another block
  };

  [[nodiscard]] slab* find(const waiting_block& waiting) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> add_piece(const slab& home, memory::block_ref ref);
  removal drop(instance& instance, slab& home, memory::block_ref ref, boot_time now);

  state& state_;
  block_states& blocks_;
  std::vector<waiting_block> waiting_;     ///< the first one is being read
  std::unique_ptr<running_checksum> sum_;  ///< … of what was read of it; null: nothing
  std::vector<wrong_session> sessions_;
};

}  // namespace cenote::blocks
