// The rules for instances: specs, their groups, sizes.
#include "services/manager/registry/instance_rules.hpp"

#include <algorithm>
#include <expected>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "services/manager/registry/field_faults.hpp"

namespace cenote::manager {

namespace {

using spec_numbers = std::map<std::string_view, std::size_t>;

void sort_names(proto::LocationSpecGroup& group) {
  auto& names = *group.mutable_spec_names();
  std::ranges::sort(names);
  const auto rest = std::ranges::unique(names);
  names.DeleteSubrange(static_cast<int>(rest.begin() - names.begin()), static_cast<int>(rest.size()));
}

// All specs, and their numbers by name. Names point into `info`.
spec_numbers take_specs(const proto::InstanceInfo& info, instance_terms& terms, field_faults& faults) {
  spec_numbers numbers;
  const auto& specs = info.location_spec_infos();
  if (specs.empty()) faults.add("location_spec_infos", "at least one is needed");
  if (static_cast<std::size_t>(specs.size()) > most_specs) {
    faults.add("location_spec_infos", "has " + std::to_string(specs.size()) + " specs, at most 64 are allowed");
    return numbers;
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; const auto& spec : specs) {
    const std::string field = indexed("location_spec_infos", i);
    faults.check_name(field + ".name", spec.name());
    if (!numbers.emplace(spec.name(), i).second) faults.add(field + ".name", "is there twice: " + spec.name());
    const auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(spec.size(), 0));
    if (bytes == 0) faults.add(field + ".size", "must be above 0");
    sum = std::min(sum + std::min(bytes, most_block_bytes + 1), most_block_bytes + 1);
    terms.specs.push_back({.name = spec.name(), .bytes = bytes});
    terms.all_specs |= 1ULL << i;
    ++i;
  }
  if (sum > most_block_bytes) faults.add("location_spec_infos", "a block's sizes together must be below 2^48 bytes");
  return numbers;
}

std::uint64_t mask_of(const proto::LocationSpecGroup& group, const std::string& field, const spec_numbers& numbers,
                      field_faults& faults) {
  std::uint64_t mask = 0;
  for (const std::string& name : group.spec_names()) {
    const auto number = numbers.find(name);
    if (number == numbers.end()) {
      faults.add(field + ".spec_names", "no spec is called " + name);
    } else {
      mask |= 1ULL << number->second;
    }
  }
  if (group.spec_names().empty()) faults.add(field + ".spec_names", "at least one is needed");
  return mask;
}

void take_groups(const proto::InstanceInfo& info, const spec_numbers& numbers, instance_terms& terms,
                 field_faults& faults) {
  const auto& groups = info.location_spec_groups();
  terms.common_specs = terms.all_specs;
  if (static_cast<std::size_t>(groups.size()) > most_spec_groups) {
    faults.add("location_spec_groups", "has " + std::to_string(groups.size()) + " groups, at most 64 are allowed");
    return;
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; const auto& group : groups) {
    const std::string field = indexed("location_spec_groups", i++);
    faults.check_name(field + ".name", group.name());
    if (!names.insert(group.name()).second) faults.add(field + ".name", "is there twice: " + group.name());
    const std::uint64_t mask = mask_of(group, field, numbers, faults);
    terms.groups.push_back({.name = group.name(), .specs = mask});
    terms.common_specs &= mask;
  }
  std::ranges::sort(terms.groups, {}, &spec_group_terms::name);
}

void check_model(const proto::InstanceInfo& info, field_faults& faults) {
  const auto& model = info.model_deployment();
  faults.check_name("model_deployment.model_name", model.model_name());
  faults.check_name("model_deployment.dtype", model.dtype());
  faults.check_count("model_deployment.tp_size", model.tp_size());
  faults.check_count("model_deployment.dp_size", model.dp_size());
  faults.check_count("model_deployment.pp_size", model.pp_size());
}

}  // namespace

proto::InstanceInfo make_instance_info(const proto::RegisterInstanceRequest& request) {
  proto::InstanceInfo info;
  info.set_instance_group_name(request.instance_group());
  info.set_instance_id(request.instance_id());
  info.set_block_size(request.block_size());
  *info.mutable_location_spec_infos() = request.location_spec_infos();
  if (request.has_model_deployment()) *info.mutable_model_deployment() = request.model_deployment();
  *info.mutable_location_spec_groups() = request.location_spec_groups();
  for (auto& group : *info.mutable_location_spec_groups()) sort_names(group);
  std::ranges::sort(*info.mutable_location_spec_groups(),
                    [](const auto& left, const auto& right) { return left.name() < right.name(); });
  info.set_default_query_type(request.default_query_type());
  info.set_affinity_strategy_json(request.affinity_strategy_json());
  return info;
}

proto::RegisterInstanceRequest make_registration(const proto::InstanceInfo& info) {
  proto::RegisterInstanceRequest request;
  request.set_instance_group(info.instance_group_name());
  request.set_instance_id(info.instance_id());
  request.set_block_size(info.block_size());
  *request.mutable_location_spec_infos() = info.location_spec_infos();
  if (info.has_model_deployment()) *request.mutable_model_deployment() = info.model_deployment();
  *request.mutable_location_spec_groups() = info.location_spec_groups();
  request.set_default_query_type(info.default_query_type());
  request.set_affinity_strategy_json(info.affinity_strategy_json());
  return request;
}

rpc_outcome<instance_terms> make_instance_terms(const proto::InstanceInfo& info) {
  field_faults faults;
  instance_terms terms{.id = info.instance_id(), .group = info.instance_group_name()};
  faults.check_name("instance_group", terms.group);
  faults.check_name("instance_id", terms.id);
  if (info.block_size() < 1) {
    faults.add("block_size", "is " + std::to_string(info.block_size()) + ", and must be 1 or more tokens");
  } else {
    terms.block_tokens = static_cast<std::uint32_t>(info.block_size());
  }
  const auto numbers = take_specs(info, terms, faults);
  take_groups(info, numbers, terms, faults);
  check_model(info, faults);
  if (!proto::QueryType_IsValid(info.default_query_type())) {
    faults.add("default_query_type", "the number " + std::to_string(info.default_query_type()) + " is unknown");
  } else if (info.default_query_type() != proto::QT_UNSPECIFIED) {
    terms.default_kind = static_cast<query_kind>(info.default_query_type());
  }
  if (auto sound = faults.outcome(); !sound) return std::unexpected(sound.error());
  return terms;
}

}  // namespace cenote::manager
