// A reader of changes that keeps a list of what a tier holds, and notes what can never be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tiers/block_changes/block_changes.hpp"

namespace cenote::testing {

class change_list {
 public:
  using name = std::tuple<std::uint32_t, std::uint32_t, std::string>;  // instance, group, key

  static name name_of(std::uint32_t instance, std::uint32_t group, const full_key& key) {
    const auto bytes = key.view();
    return {instance, group, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }

  /// False: too many others read.
  bool read(block_changes& changes_of_tier, const block_listing& tier, std::size_t steps = 4096) {
    const auto run = changes_of_tier.read(reader, steps, tier);
    if (run) take(*run);
    return run.has_value();
  }
  void read_all(block_changes& changes_of_tier, const block_listing& tier) {
    do {
      if (!read(changes_of_tier, tier)) return;
    } while (!is_complete);
  }

  void take(const change_run& run) {
    if (run.begins_anew) {
      ++beginnings;
      blocks.clear();
      subjects.clear();
    }
    for (const change_subject& each : run.subjects) {
      if (!subjects.insert(each.instance).second) wrong = "an instance was named twice";
    }
    for (const tier_change& each : run.changes) take(each);
    is_complete = run.is_complete;
    changes += run.changes.size();
  }

  change_reader reader = 1;
  std::set<name> blocks;
  std::set<std::uint32_t> subjects;
  std::uint64_t beginnings = 0, changes = 0, clears = 0;
  bool is_complete = false;
  std::string wrong;  ///< the last thing

 private:
  void take(const tier_change& change) {
    const name what = name_of(change.instance, change.group, change.key);
    switch (change.kind) {
      case tier_change_kind::stored:
        if (!blocks.insert(what).second) wrong = "a block was stored twice";
        break;
      case tier_change_kind::removed:
        if (blocks.erase(what) == 0) wrong = "a block was removed that was not there";
        break;
      case tier_change_kind::ended: subjects.erase(change.instance); [[fallthrough]];
      case tier_change_kind::cleared:
        ++clears;
        std::erase_if(blocks, [&](const name& each) { return std::get<0>(each) == change.instance; });
        break;
    }
  }
};

}  // namespace cenote::testing
