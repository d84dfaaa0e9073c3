#include "services/manager/writes/departures.hpp"

#include <memory>
#include <utility>

#include "core/random_number.hpp"
#include "services/manager/registry/instance_rules.hpp"
#include "services/manager/registry/row_format.hpp"

namespace cenote::manager {

namespace {

constexpr std::string_view departure_kind = "x/";

std::string key_of(std::uint64_t instance) {
  return std::string(departure_kind) + std::to_string(instance);
}

std::string row_of(const std::string& key) {
  return static_cast<char>(row_kind::registry) + key;
}

}  // namespace

bool is_departure(std::string_view key) noexcept {
  return key.starts_with(departure_kind);
}

journal_row departure_row(const registered_instance& instance) {
  proto::registry::InstanceRow row;
  *row.mutable_instance() = instance.info;
  row.set_number(instance.terms.number);
  const std::string key = key_of(instance.terms.number);
  return {.name = row_of(key), .value = pack_row(key, row.SerializeAsString())};
}

journal_row departure_end(std::uint64_t instance) {
  return {.name = row_of(key_of(instance))};
}

bool restore_departure(manager_state& state, std::string_view key, std::string_view value) {
  const auto content = unpack_row(key, value);
  proto::registry::InstanceRow row;
  if (!content || !row.ParseFromArray(content->data(), static_cast<int>(content->size()))) return false;
  auto terms = make_instance_terms(row.instance());
  if (!terms || row.number() == 0 || key != key_of(row.number()) || state.instance(row.number()) != nullptr)
    return false;
  terms->number = row.number();
  auto instance = std::make_unique<instance_state>();
  instance->index = std::make_shared<instance_index>(random_number());
  const auto group = state.groups.find(terms->group);
  if (group != state.groups.end()) {
    instance->group = group->second;
  } else {  // it went after its last instance
    instance->group = std::make_shared<group_usage>();
    instance->group->terms = std::make_shared<const group_terms>();
  }
  instance->is_departing = true;
  instance->terms = std::make_shared<const instance_terms>(std::move(*terms));
  state.instances.emplace(row.number(), std::move(instance));
  return true;
}

}  // namespace cenote::manager
