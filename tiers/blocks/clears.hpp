// Instances that are cleared, in steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class block_states;
class handed_out;
class lower_edges;
class transfer_table;

/// Forgets all blocks of instances, a step at a time.
class clears {
 public:
  clears(state& state, transfer_table& transfers, block_states& blocks, handed_out& handed_out,
         lower_edges& edges) noexcept
      : state_(state), transfers_(transfers), blocks_(blocks), handed_out_(handed_out), edges_(edges) {}

  /// Forgets every block of the instance called `id`, and returns how many; nothing when there is no such instance.
  /// Adds to `below` what the tiers below have to forget.
  std::optional<std::uint64_t> clear_instance(const std::string& id, boot_time now,
                                              std::vector<removal>* below = nullptr);
  std::uint64_t clear_all(boot_time now, std::vector<removal>* below = nullptr);
  /// Begins the same in steps, which clear_some() carries out: of the instance called `id`, or of all when it is empty.
  /// Nothing when there is no such instance.
  [[nodiscard]] std::optional<std::vector<clear_work>> begin_clear(const std::string& id, std::vector<removal>& below);
  /// … of the instance with this number, of which no tier below is told.
  [[nodiscard]] std::optional<clear_work> begin_clear(instance_number number);
  /// Forgets these blocks, and what is on its way up of them, without a word to the tiers below. Returns how many there
  /// were.
  std::uint64_t forget_keys(instance_number number, std::span<const block_key> keys, boot_time now);
  [[nodiscard]] clear_work begin_clear_of(instance& instance, std::vector<removal>* below);
  /// Carries out up to `budget` steps. True: done.
  bool clear_some(clear_work& work, boot_time now, std::uint64_t budget);
  /// For tests of engines: alters every 16-bit word of every block that is here, and has all that is in the tier below
  /// forgotten, so that no right byte is left. Returns the number of blocks.
  std::uint64_t corrupt_all(std::vector<removal>& below);

 private:
  bool clear_slab(instance& instance, clear_work& work, boot_time now);
  std::uint64_t clear_blocks(instance& instance, boot_time now, std::vector<removal>* below);

  state& state_;
  transfer_table& transfers_;
  block_states& blocks_;
  handed_out& handed_out_;
  lower_edges& edges_;
};

}  // namespace cenote::blocks
