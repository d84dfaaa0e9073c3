// Blocks that are exempt from eviction, as sessions or the configuration say.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class eviction_order;

/// Keeps blocks within the quotas of their accounts, and lets go of those that are too many.
class kept_blocks {
 public:
  kept_blocks(state& state, accounts& payers, eviction_order& order) noexcept
      : state_(state), accounts_(payers), order_(order) {}

  void set_groups(std::map<std::string, group_options> groups, boot_time now);
  void set_limits(const limit_options& limits, boot_time now);
  bool set_kept(slab& home, memory::block_ref ref, bool kept, boot_time now);
  void trim_kept(boot_time now);
  void keep_no_more(pool& group, boot_time now);

 private:
  void review_accounts(boot_time now);
  void keep_everywhere(instance& instance, const full_key& key, bool kept, boot_time now);
  void trim_kept_of(slab& home, boot_time now);

  state& state_;
  accounts& accounts_;
  eviction_order& order_;
  std::uint32_t trim_at_ = 0;  ///< where the next look for kept blocks beyond a limit begins
};

}  // namespace cenote::blocks
