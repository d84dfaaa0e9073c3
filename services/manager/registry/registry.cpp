// Changes of the registry: what is allowed, and what it leads to.
#include "services/manager/registry/registry.hpp"

#include <algorithm>
#include <expected>
#include <string>
#include <utility>

#include "services/manager/registry/field_faults.hpp"
#include "services/manager/registry/group_rules.hpp"
#include "services/manager/registry/instance_rules.hpp"
#include "services/manager/registry/message_difference.hpp"
#include "services/manager/registry/registry_editor.hpp"
#include "services/manager/registry/storage_rules.hpp"

namespace cenote::manager {

namespace {

using proto::admin::InstanceGroup;
using proto::admin::StorageConfig;

template <class Entry>
std::shared_ptr<const Entry> find_entry(const entry_map<Entry>& entries, std::string_view name) {
  const auto place = entries.find(name);
  return place != entries.end() ? place->second : nullptr;
}

std::string quoted(std::string_view kind, std::string_view name) {
  return std::string(kind).append(" `").append(name).append("`");
}

std::unexpected<rpc_refusal> refuse_absence(std::string_view kind, std::string_view name) {
  return refuse(answer_code::not_found, quoted(kind, name) + " does not exist");
}

std::unexpected<rpc_refusal> refuse_duplicate(const std::string& subject, const message_difference& difference) {
  return refuse(answer_code::duplicate_entity, subject + " exists with another " + difference.field + ": " +
                                                   difference.base + ", not " + difference.other);
}

// The message as it is kept: the type stands in it, and so does the operator's switch.
StorageConfig kept_config(const StorageConfig& config, const storage_terms& terms) {
  StorageConfig kept = config;
  kept.set_storage_type(static_cast<proto::StorageType>(terms.type));
  kept.set_is_disabled(!terms.is_enabled);
  return kept;
}

std::vector<const registered_group*> groups_with(const entry_map<registered_group>& groups, std::string_view storage) {
  std::vector<const registered_group*> named;
  for (const auto& [name, entry] : groups) {
    if (std::ranges::find(entry->terms.candidates, storage) != entry->terms.candidates.end())
      named.push_back(entry.get());
  }
  return named;
}

registered_group without_candidate(const registered_group& entry, std::string_view storage) {
  registered_group next = entry;
  std::erase(next.terms.candidates, storage);
  next.group.clear_storage_candidates();
  for (const std::string& name : next.terms.candidates) next.group.add_storage_candidates(name);
  next.terms.version = entry.terms.version + 1;
  next.group.set_version(next.terms.version);
  return next;
}

rpc_outcome<> check_candidates(const manager_registry& base, const InstanceGroup& group) {
  std::string absent;
  const auto check = [&](const auto& names) {
    for (const std::string& name : names) {
      if (!base.find_storage(name)) absent.append(absent.empty() ? "`" : ", `").append(name).append("`");
    }
  };
  check(group.storage_candidates());
  check(group.event_report_storage_candidates());
  if (absent.empty()) return {};
  return refuse(answer_code::not_found, "storage_candidates: no storage is called " + absent);
}

// Quotas that nothing can use yet, which is allowed.
void remark_idle_quotas(const manager_registry& base, const group_terms& terms, registry_editor& editor) {
  for (const type_quota& quota : terms.type_quotas) {
    const bool is_used = std::ranges::any_of(terms.candidates, [&](const std::string& name) {
      const auto storage = base.find_storage(name);
      return storage && storage->terms.type == quota.type;
    });
    if (!is_used) {
      editor.remark("quota.quota_config: no candidate is of type " + std::string(name_of(quota.type)));
    }
  }
}

}  // namespace

manager_registry::manager_registry(plugin_types plugins)
    : plugins_(std::move(plugins)),
      storages_(std::make_shared<const entry_map<registered_storage>>()),
      groups_(std::make_shared<const entry_map<registered_group>>()),
      instances_(std::make_shared<const entry_map<registered_instance>>()),
      accounts_(std::make_shared<const entry_map<registered_account>>()) {}

std::shared_ptr<const registered_storage> manager_registry::find_storage(std::string_view name) const {
  return find_entry(*storages_, name);
}

std::shared_ptr<const registered_group> manager_registry::find_group(std::string_view name) const {
  return find_entry(*groups_, name);
}

std::shared_ptr<const registered_instance> manager_registry::find_instance(std::string_view id) const {
  return find_entry(*instances_, id);
}

std::shared_ptr<const registered_account> manager_registry::find_account(std::string_view name) const {
  return find_entry(*accounts_, name);
}

std::size_t manager_registry::instance_count(std::string_view group) const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(*instances_, [&](const auto& item) { return item.second->terms.group == group; }));
}

rpc_outcome<registry_change> manager_registry::add_storage(const StorageConfig& config) const {
  StorageConfig enabled = config;
  enabled.clear_is_disabled();
  auto terms = make_storage_terms(enabled, plugins_);
  if (!terms) return std::unexpected(terms.error());
  StorageConfig kept = kept_config(enabled, *terms);
  registry_editor editor(*this);
  if (const auto stored = find_storage(terms->name)) {
    if (const auto difference = first_difference(stored->config, kept, "is_disabled")) {
      return refuse_duplicate(quoted("storage", terms->name), *difference);
    }
    return std::move(editor).take();
  }
  const auto number = editor.take_storage_number();
  if (!number)
    return refuse(answer_code::reach_max_entity_capacity, "storage: there are 255, and no more can be added");
  terms->number = *number;
  editor.put(registered_storage{.terms = std::move(*terms), .config = std::move(kept)});
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::update_storage(const StorageConfig& config, storage_use use,
                                                              change_force force) const {
  auto terms = make_storage_terms(config, plugins_);
  if (!terms) return std::unexpected(terms.error());
  const auto stored = find_storage(terms->name);
  if (!stored) return refuse_absence("storage", terms->name);
  terms->number = stored->terms.number;
  terms->is_enabled = stored->terms.is_enabled;
  registry_editor editor(*this);
  if (use == storage_use::has_locations && !same_addresses(stored->terms, *terms)) {
    if (force == change_force::none) {
      return refuse(answer_code::in_use, quoted("storage", terms->name) +
                                             " has locations, and another type, path or number of blocks a file would "
                                             "lose them: remove them, or give force_update");
    }
    editor.change().dropped_storage = terms->number;
    editor.remark("all locations in " + quoted("storage", terms->name) + " are dropped");
  }
  StorageConfig kept = kept_config(config, *terms);
  if (!first_difference(stored->config, kept)) return std::move(editor).take();
  editor.put(registered_storage{.terms = std::move(*terms), .config = std::move(kept)});
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::switch_storage(std::string_view name, storage_switch state) const {
  const auto stored = find_storage(name);
  if (!stored) return refuse_absence("storage", name);
  registry_editor editor(*this);
  const bool is_enabled = state == storage_switch::enabled;
  if (stored->terms.is_enabled == is_enabled) return std::move(editor).take();
  registered_storage next = *stored;
  next.terms.is_enabled = is_enabled;
  next.config.set_is_disabled(!is_enabled);
  editor.put(std::move(next));
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::remove_storage(std::string_view name, storage_use use,
                                                              change_force force) const {
  const auto stored = find_storage(name);
  if (!stored) return refuse_absence("storage", name);
  const auto named = groups_with(*groups_, name);
  if (force == change_force::none) {
    if (!named.empty()) {
      return refuse(answer_code::in_use, quoted("storage", name) + " is a candidate of " +
                                             quoted("group", named.front()->terms.name) +
                                             ": take it out of the group, or give force");
    }
    if (use == storage_use::has_locations) {
      return refuse(answer_code::in_use, quoted("storage", name) + " has locations: remove them, or give force");
    }
  }
  registry_editor editor(*this);
  for (const registered_group* entry : named) {
    editor.put(without_candidate(*entry, name));
    editor.remark(quoted("group", entry->terms.name) + " names it no more");
  }
  if (use == storage_use::has_locations) editor.change().dropped_storage = stored->terms.number;
  editor.erase_storage(name);
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::create_group(const InstanceGroup& group) const {
  auto terms = make_group_terms(group, candidate_rule::needed);
  if (!terms) return std::unexpected(terms.error());
  if (auto checked = check_candidates(*this, group); !checked) return std::unexpected(checked.error());
  registry_editor editor(*this);
  if (const auto stored = find_group(terms->name)) {
    if (const auto difference = first_difference(stored->group, group)) {
      return refuse_duplicate(quoted("group", terms->name), *difference);
    }
    return std::move(editor).take();
  }
  remark_idle_quotas(*this, *terms, editor);
  editor.put(registered_group{.terms = std::move(*terms), .group = group});
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::update_group(const InstanceGroup& group,
                                                            std::int64_t current_version) const {
  auto terms = make_group_terms(group, candidate_rule::needed);
  if (!terms) return std::unexpected(terms.error());
  const auto stored = find_group(terms->name);
  if (!stored) return refuse_absence("group", terms->name);
  if (current_version != stored->terms.version || terms->version <= stored->terms.version) {
    return refuse(answer_code::version_conflict,
                  quoted("group", terms->name) + " has version " + std::to_string(stored->terms.version) +
                      ": current_version must be that, and instance_group.version larger; they are " +
                      std::to_string(current_version) + " and " + std::to_string(terms->version));
  }
  if (auto checked = check_candidates(*this, group); !checked) return std::unexpected(checked.error());
  registry_editor editor(*this);
  remark_idle_quotas(*this, *terms, editor);
  editor.put(registered_group{.terms = std::move(*terms), .group = group});
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::remove_group(std::string_view name) const {
  if (!find_group(name)) return refuse_absence("group", name);
  if (const std::size_t count = instance_count(name); count != 0) {
    return refuse(answer_code::in_use,
                  quoted("group", name) + " has " + std::to_string(count) + " instances: remove them first");
  }
  registry_editor editor(*this);
  editor.erase_group(name);
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::register_instance(const proto::RegisterInstanceRequest& request) const {
  proto::InstanceInfo info = make_instance_info(request);
  auto terms = make_instance_terms(info);
  if (!terms) return std::unexpected(terms.error());
  registry_editor editor(*this);
  if (const auto stored = find_instance(terms->id)) {
    const auto difference =
        first_difference(make_registration(stored->info), make_registration(info), "model_deployment.user_data");
    if (difference) return refuse_duplicate(quoted("instance", terms->id), *difference);
    return std::move(editor).take();
  }
  const auto group = find_group(terms->group);
  if (!group) return refuse_absence("instance_group: group", terms->group);
  if (group->terms.max_instances != 0 && instance_count(terms->group) >= group->terms.max_instances) {
    return refuse(answer_code::reach_max_entity_capacity, quoted("group", terms->group) + " has all of its " +
                                                              std::to_string(group->terms.max_instances) +
                                                              " instances (max_instance_count)");
  }
  info.set_quota_group_name(group->group.global_quota_group_name());
  terms->number = editor.take_instance_number();
  editor.put(registered_instance{.terms = std::move(*terms), .info = std::move(info)});
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::remove_instance(std::string_view group, std::string_view id) const {
  const auto stored = find_instance(id);
  if (!stored || (!group.empty() && stored->terms.group != group)) {
    return refuse(answer_code::instance_not_exist,
                  quoted("instance", id) + " does not exist" + (group.empty() ? "" : " in " + quoted("group", group)));
  }
  registry_editor editor(*this);
  editor.change().removed_instance = stored->terms.number;
  editor.erase_instance(id);
  return std::move(editor).take();
}

}  // namespace cenote::manager
