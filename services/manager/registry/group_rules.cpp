// The rules for groups: quotas, levels and policies of reclaim, settings of the original's index.
#include "services/manager/registry/group_rules.hpp"

#include <algorithm>
#include <cmath>
#include <expected>
#include <set>
#include <string>
#include <string_view>

#include "services/manager/registry/field_faults.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::manager {

namespace {

constexpr double default_level = 0.9;
constexpr std::string_view ttl_policy = "ttl";
constexpr std::string_view reclaim_field = "cache_config.reclaim_strategy.";

std::uint64_t positive(std::int64_t value) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
}

std::string reclaim(std::string_view field) {
  return std::string(reclaim_field).append(field);
}

void take_candidates(const proto::admin::InstanceGroup& group, group_terms& terms, field_faults& faults) {
  const auto& names = group.storage_candidates();
  std::set<std::string_view> seen;
  for (std::size_t i = 0; const std::string& name : names) {
    const std::string field = indexed("storage_candidates", i++);
    faults.check_name(field, name);
    if (!seen.insert(name).second) faults.add(field, "is there twice: " + name);
    terms.candidates.push_back(name);
  }
}

void take_quota(const proto::admin::InstanceGroup& group, group_terms& terms, field_faults& faults) {
  terms.capacity = positive(group.quota().capacity());
  for (std::size_t i = 0; const auto& quota : group.quota().quota_config()) {
    const std::string field = indexed("quota.quota_config", i++) + ".storage_type";
    const auto type = storage_type_of(quota.storage_type());
    if (!type || *type == storage_type::unspecified) {
      faults.add(field, "the type " + std::to_string(quota.storage_type()) + " is unknown");
    } else if (terms.find_quota(*type) != nullptr) {
      faults.add(field, std::string(name_of(*type)) + " is there twice");
    } else {
      terms.type_quotas.push_back({.type = *type, .capacity = positive(quota.capacity())});
    }
  }
}

void take_preference(const proto::admin::CacheConfig& config, group_terms& terms, field_faults& faults) {
  const int choice = config.data_storage_strategy();
  if (choice == proto::admin::CPS_UNSPECIFIED) return;
  for (const storage_kind& kind : storage_kinds) {
    if (kind.always_choice == 0 || (choice != kind.always_choice && choice != kind.always_choice + 1)) continue;
    terms.preference = choice == kind.always_choice ? preference_rule::always : preference_rule::first;
    terms.preferred_type = kind.type;
    return;
  }
  faults.add("cache_config.data_storage_strategy", "the number " + std::to_string(choice) + " is unknown");
}

void take_levels(const proto::admin::CacheReclaimStrategy& strategy, group_terms& terms, field_faults& faults) {
  if (!strategy.has_trigger_strategy()) {
    terms.used_percentage = default_level;
    return;
  }
  const auto& trigger = strategy.trigger_strategy();
  const double level = trigger.used_percentage();
  faults.check_count(reclaim("trigger_strategy.used_size"), trigger.used_size());
  if (!std::isfinite(level) || level < 0 || (level == 0 && trigger.used_size() <= 0)) {
    faults.add(reclaim("trigger_strategy.used_percentage"), "must be above 0, as 0.9");
    return;
  }
  terms.used_percentage = level;
  terms.used_size = positive(trigger.used_size());
}

void take_policy(const proto::admin::CacheReclaimStrategy& strategy, group_terms& terms, field_faults& faults) {
  if (const std::string& name = strategy.reclaim_policy_name(); !name.empty()) {
    const auto* row = eviction::find_policy(name);
    if (name != ttl_policy && (row == nullptr || row->use == eviction::policy_use::replays)) {
      faults.add(reclaim("reclaim_policy_name"),
                 "no policy is called " + name + "; there are ttl|" + std::string(eviction::choices_of_requests()));
    }
    terms.policy = name;
  } else {
    switch (strategy.reclaim_policy()) {
      case proto::admin::POLICY_UNSPECIFIED:
      case proto::admin::POLICY_LRU: terms.policy = "lru"; break;
      case proto::admin::POLICY_LFU: terms.policy = "lfu"; break;
      case proto::admin::POLICY_TTL: terms.policy = ttl_policy; break;
      default:
        faults.add(reclaim("reclaim_policy"),
                   "the number " + std::to_string(strategy.reclaim_policy()) + " is unknown");
    }
  }
  terms.ttl_seconds = positive(strategy.ttl_seconds());
  terms.is_ttl_sliding = strategy.ttl_sliding();
  faults.check_count(reclaim("ttl_seconds"), strategy.ttl_seconds());
  if (terms.policy == ttl_policy && strategy.ttl_seconds() == 0) {
    faults.add(reclaim("ttl_seconds"), "is needed by the policy ttl");
  }
}

void take_steps(const proto::admin::CacheReclaimStrategy& strategy, group_terms& terms, field_faults& faults) {
  faults.check_count(reclaim("trigger_period_seconds"), strategy.trigger_period_seconds());
  faults.check_count(reclaim("reclaim_step_size"), strategy.reclaim_step_size());
  faults.check_count(reclaim("delay_before_delete_ms"), strategy.delay_before_delete_ms());
  terms.trigger_period_seconds = static_cast<std::uint32_t>(positive(strategy.trigger_period_seconds()));
  terms.step_size = positive(strategy.reclaim_step_size());
  terms.delay_before_delete_ms = static_cast<std::uint32_t>(positive(strategy.delay_before_delete_ms()));
  const std::int32_t percentage = strategy.reclaim_step_percentage();
  if (percentage < 0 || percentage > 100) {
    faults.add(reclaim("reclaim_step_percentage"), "must be 1 to 100");
  } else if (percentage > 0) {
    terms.step_percentage = static_cast<std::uint32_t>(percentage);
  }
  if (!strategy.has_instance_reclaim_budget_policy()) return;
  if (const auto budget = strategy.instance_reclaim_budget_policy();
      proto::admin::InstanceReclaimBudgetPolicy_IsValid(budget)) {
    terms.budget = static_cast<budget_policy>(budget);
  } else {
    faults.add(reclaim("instance_reclaim_budget_policy"), "the number " + std::to_string(budget) + " is unknown");
  }
}

// The settings of an index of another make: most have no effect, but what it refuses is refused.
void take_index(const proto::admin::MetaIndexerConfig& config, group_terms& terms, field_faults& faults) {
  const std::string field = "cache_config.meta_indexer_config.";
  faults.check_count(field + "max_key_count", config.max_key_count());
  terms.max_keys = positive(config.max_key_count());
  const std::int64_t shards = config.mutex_shard_num();
  if (shards < 0 || (shards & (shards - 1)) != 0) {
    faults.add(field + "mutex_shard_num", "is " + std::to_string(shards) + ", and must be a power of two");
  } else if (config.max_key_count() > 0 && shards > config.max_key_count()) {
    faults.add(field + "mutex_shard_num", "is " + std::to_string(shards) + ", above max_key_count, which is " +
                                              std::to_string(config.max_key_count()));
  }
  const std::string& cache = config.meta_cache_policy_config().type();
  if (!cache.empty() && cache != "LRU" && cache != "lru") {
    faults.add(field + "meta_cache_policy_config.type", "is " + cache + ", and must be LRU");
  }
}

}  // namespace

rpc_outcome<group_terms> make_group_terms(const proto::admin::InstanceGroup& group, candidate_rule rule) {
  const auto& config = group.cache_config();
  if (config.migration_config().strategies_size() > 0) {
    return refuse(answer_code::unsupported, "cache_config.migration_config.strategies: migration is not built");
  }
  field_faults faults;
  group_terms terms{.name = group.name(), .is_paused = group.reclaim_paused(), .version = group.version()};
  faults.check_name("name", group.name());
  faults.check_count("version", group.version());
  faults.check_count("max_instance_count", group.max_instance_count());
  terms.max_instances = positive(group.max_instance_count());
  take_candidates(group, terms, faults);
  if (rule == candidate_rule::needed && terms.candidates.empty() && group.event_report_storage_candidates().empty()) {
    faults.add("storage_candidates", "at least one is needed");
  }
  take_quota(group, terms, faults);
  take_preference(config, terms, faults);
  take_levels(config.reclaim_strategy(), terms, faults);
  take_policy(config.reclaim_strategy(), terms, faults);
  take_steps(config.reclaim_strategy(), terms, faults);
  take_index(config.meta_indexer_config(), terms, faults);
  if (auto sound = faults.outcome(); !sound) return std::unexpected(sound.error());
  return terms;
}

}  // namespace cenote::manager
