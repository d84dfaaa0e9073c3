// A tier below that keeps its copies in this process's memory: shows what any tier below has to do, and no more.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/messages.hpp"

namespace cenote::testing {

/// Keeps all that it is given. It has no hints, so it is asked for whatever no other tier has.
class memory_tier final : public lower_tier_actor::base {
 public:
  /// What a test sees of it, from any thread.
  struct counts {
    std::atomic<std::uint64_t> written{0}, filled{0}, missing{0};
  };

  memory_tier(caf::actor_config& config, std::shared_ptr<counts> seen)
      : lower_tier_actor::base(config), counts_(std::move(seen)) {}

  [[nodiscard]] const char* name() const override { return "memory_tier"; }
  void on_exit() override { above_ = nullptr; }

 protected:
  behavior_type make_behavior() override;

 private:
  /// An instance by its id: its number may change.
  using copy_name = std::tuple<std::string, std::uint64_t, std::uint64_t>;
  struct copy {
    std::vector<std::byte> bytes;
    std::uint64_t checksum = 0;
  };

  [[nodiscard]] copy_name name_of(std::uint32_t instance, const block_key& key) const;
  [[nodiscard]] key_answer_ptr locate(const key_query& asked) const;
  transfer_result keep(const transfer& one);
  transfer_result fill(const transfer& one);
  outcome forget(const std::vector<blocks::removal>& removals);
  std::uint64_t forget_all_of(const std::string& id);
  template <class Carry>
  void answer(const std::vector<transfer>& asked, Carry carry);

  std::shared_ptr<counts> counts_;
  upper_tier_actor above_;
  std::unordered_map<std::uint32_t, std::string> ids_;  ///< by the instance's number
  std::map<copy_name, copy> copies_;
};

}  // namespace cenote::testing
