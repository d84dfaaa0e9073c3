// Look-ups in the terms of instances, storages and groups.
#include "services/manager/registry/terms.hpp"

#include <algorithm>

namespace cenote::manager {

const spec_group_terms* instance_terms::find_group(std::string_view name) const noexcept {
  const auto place = std::ranges::lower_bound(groups, name, {}, &spec_group_terms::name);
  return place != groups.end() && place->name == name ? &*place : nullptr;
}

std::optional<std::size_t> instance_terms::find_spec(std::string_view name) const noexcept {
  const auto place = std::ranges::find(specs, name, &spec_terms::name);
  if (place == specs.end()) return std::nullopt;
  return static_cast<std::size_t>(place - specs.begin());
}

bool same_addresses(const storage_terms& first, const storage_terms& second) noexcept {
  return first.type == second.type && first.root == second.root && first.blocks_per_file == second.blocks_per_file &&
         first.server_url == second.server_url && first.plugin_spec == second.plugin_spec;
}

bool same_access(const storage_terms& first, const storage_terms& second) noexcept {
  return same_addresses(first, second) && first.server_auth_file == second.server_auth_file;
}

const type_quota* group_terms::find_quota(storage_type type) const noexcept {
  const auto place = std::ranges::find(type_quotas, type, &type_quota::type);
  return place != type_quotas.end() ? &*place : nullptr;
}

}  // namespace cenote::manager
