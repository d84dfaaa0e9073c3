#include "tests/support/memory_tier.hpp"

#include <algorithm>
#include <cstring>

#include "core/checksum.hpp"

namespace cenote::testing {

memory_tier::behavior_type memory_tier::make_behavior() {
  return {
      [this](above_atom, blocks::edge_number edge) {
        above_ = caf::actor_cast<upper_tier_actor>(current_sender());
        send(above_, drained_atom_v, edge, true);  // only this process writes to its memory
      },
      [this](bind_atom, const instance_binding_ptr& instance) {
        ids_.insert_or_assign(instance->number, instance->spec.id);
      },
      [this](unbind_atom, std::uint32_t instance) { ids_.erase(instance); },
      [this](write_atom, const transfers_ptr& blocks) {
        answer(*blocks, [this](const transfer& one) { return keep(one); });
      },
      [this](fetch_atom, const transfers_ptr& blocks) {
        answer(*blocks, [this](const transfer& one) { return fill(one); });
      },
      [this](locate_atom, const key_query_ptr& asked) { return locate(*asked); },
      [this](forget_atom, const removals_ptr& removals) { return forget(*removals); },
      [](report_atom) -> tier_report_ptr { return std::make_shared<const tier_report>("memory"); },
      [](tick_atom) {},
      [](reload_atom, const config_ptr&) {},
  };
}

template <class Carry>
void memory_tier::answer(const std::vector<transfer>& asked, Carry carry) {
  auto outcomes = std::make_shared<std::vector<transfer_outcome>>();
  for (const transfer& each : asked) outcomes->push_back({each.token, carry(each)});
  send(above_, transfers_done_atom_v, transfer_outcomes_ptr(std::move(outcomes)));
}

memory_tier::copy_name memory_tier::name_of(std::uint32_t instance, const block_key& key) const {
  const auto id = ids_.find(instance);
  return {id == ids_.end() ? std::string() : id->second, key.hi, key.lo};
}

key_answer_ptr memory_tier::locate(const key_query& asked) const {
  auto answer = std::make_shared<key_answer>();
  for (const full_key& full : asked.keys) {
    answer->held.push_back(copies_.contains(name_of(asked.instance, reduce_key(full.view(), asked.group))));
  }
  return answer;
}

transfer_result memory_tier::keep(const transfer& one) {
  copies_[name_of(one.instance, one.key)] = {{one.memory.begin(), one.memory.end()},
                                             checksum_of(one.memory.data(), one.memory.size())};
  ++counts_->written;
  return transfer_result::done;
}

transfer_result memory_tier::fill(const transfer& one) {
  const auto found = copies_.find(name_of(one.instance, one.key));
  if (found == copies_.end()) {
    ++counts_->missing;
    return transfer_result::missing;
  }
  const copy& kept = found->second;
  if (checksum_of(kept.bytes.data(), kept.bytes.size()) != kept.checksum) return transfer_result::failed;
  std::memcpy(one.memory.data(), kept.bytes.data(), one.memory.size());
  ++counts_->filled;
  return transfer_result::done;
}

std::uint64_t memory_tier::forget_all_of(const std::string& id) {
  return std::erase_if(copies_, [&](const auto& each) { return std::get<0>(each.first) == id; });
}

outcome memory_tier::forget(const std::vector<blocks::removal>& removals) {
  std::uint64_t removed = 0;
  for (const blocks::removal& each : removals) {
    const auto id = ids_.find(each.instance);
    const std::string& name = id == ids_.end() ? each.id : id->second;
    if (each.all && each.instance == 0 && each.id.empty()) {
      removed += copies_.size();
      copies_.clear();
    } else if (each.all) {
      const std::uint64_t gone = forget_all_of(name);
      if (gone == 0 && each.instance == 0) return {error_code::invalid_argument, "no instance `" + name + "`", 0};
      removed += gone;
    } else {
      for (const block_key& key : each.keys) removed += copies_.erase({name, key.hi, key.lo});
    }
  }
  return {error_code::ok, {}, removed};
}

}  // namespace cenote::testing
