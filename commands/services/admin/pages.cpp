#include "commands/services/admin/pages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands/table.hpp"
#include "core/units.hpp"
#include "transport/manager/storage_type.hpp"

namespace cenote::admin {

namespace {

std::string bytes_text(std::int64_t bytes) {
  return bytes > 0 ? approximate_bytes(static_cast<std::uint64_t>(bytes)) : "-";
}

std::string or_dash(std::string text) {
  return text.empty() ? "-" : std::move(text);
}

/// The part that is given, and its kind; null: none.
struct given_part {
  const google::protobuf::Message* fields = nullptr;
  const manager::storage_kind* kind = nullptr;
};

given_part part_of(const wire::admin::StorageConfig& storage) {
  const auto* const parts = wire::admin::StorageConfig::descriptor()->FindOneofByName("storage_spec");
  const auto* const reflection = wire::admin::StorageConfig::GetReflection();
  const auto* const field = reflection->GetOneofFieldDescriptor(storage, parts);
  if (field == nullptr) return {};
  return {&reflection->GetMessage(storage, field), manager::find_kind_of_part(field->name())};
}

/// The type of the part that has the place, or the one that was given.
std::string type_text(const wire::admin::StorageConfig& storage) {
  const auto [fields, kind] = part_of(storage);
  return kind != nullptr && !kind->label.empty() ? std::string(kind->label)
                                                 : wire::StorageType_Name(storage.storage_type());
}

std::string place_text(const wire::admin::StorageConfig& storage) {
  const auto [fields, kind] = part_of(storage);
  if (kind == nullptr || kind->place.front().empty()) return "-";
  std::string text;
  for (const std::string_view name : kind->place) {
    if (name.empty()) break;
    if (name != kind->place.front()) text += '/';
    text += fields->GetReflection()->GetString(*fields, fields->GetDescriptor()->FindFieldByName(std::string(name)));
  }
  return text;
}

std::string policy_text(const wire::admin::CacheReclaimStrategy& reclaim) {
  if (!reclaim.reclaim_policy_name().empty()) return reclaim.reclaim_policy_name();
  switch (reclaim.reclaim_policy()) {
    case wire::admin::POLICY_LFU: return "lfu";
    case wire::admin::POLICY_TTL: return fmt::format("ttl {} s", reclaim.ttl_seconds());
    default: return "lru";
  }
}

std::string level_text(const wire::admin::TriggerStrategy& level) {
  std::string text = level.used_percentage() > 0 ? percent(level.used_percentage()) : "";
  if (level.used_size() > 0) text += (text.empty() ? "" : ", ") + bytes_text(level.used_size());
  return or_dash(std::move(text));
}

std::string value_text(const wire::admin::MetricValue& value) {
  switch (value.value_case()) {
    case wire::admin::MetricValue::kIntValue: return std::to_string(value.int_value());
    case wire::admin::MetricValue::kFloatValue: return fmt::format("{}", value.float_value());
    case wire::admin::MetricValue::kStringValue: return value.string_value();
    default: return "-";
  }
}

}  // namespace

std::string storages_page(const message_list<wire::admin::StorageConfig>& storages) {
  table rows({"NAME", "TYPE", "PLACE", ">CAPACITY", ">WEIGHT", "STATE"});
  for (const auto& each : storages) {
    rows.add({each.global_unique_name(), type_text(each), place_text(each), bytes_text(each.capacity()),
              each.has_read_weight() ? std::to_string(each.read_weight()) : "-",
              each.is_disabled() ? "disabled" : "enabled"});
  }
  return rows.empty() ? "  there is no storage\n" : rows.text();
}

std::string groups_page(const message_list<wire::admin::InstanceGroup>& groups) {
  table rows({"NAME", "STORAGES", ">QUOTA", ">KEYS", ">INSTANCES", "POLICY", ">LEVEL", "RECLAIM", ">VERSION"});
  for (const auto& each : groups) {
    const auto& reclaim = each.cache_config().reclaim_strategy();
    rows.add({each.name(), or_dash(fmt::format("{}", fmt::join(each.storage_candidates(), ", "))),
              bytes_text(each.quota().capacity()),
              std::to_string(each.cache_config().meta_indexer_config().max_key_count()),
              std::to_string(each.max_instance_count()), policy_text(reclaim), level_text(reclaim.trigger_strategy()),
              each.reclaim_paused() ? "paused" : "on", std::to_string(each.version())});
  }
  return rows.empty() ? "  there is no group\n" : rows.text();
}

std::string instances_page(const message_list<wire::InstanceInfo>& instances) {
  table rows({"ID", "GROUP", "MODEL", "DTYPE", ">TOKENS", "SPECS"});
  for (const auto& each : instances) {
    std::string specs;
    for (const auto& spec : each.location_spec_infos()) {
      specs += fmt::format("{}{} {}", specs.empty() ? "" : ", ", spec.name(), bytes_text(spec.size()));
    }
    rows.add({each.instance_id(), each.instance_group_name(), each.model_deployment().model_name(),
              each.model_deployment().dtype(), std::to_string(each.block_size()), specs});
  }
  return rows.empty() ? "  there is no instance\n" : rows.text();
}

std::string accounts_page(const message_list<wire::admin::Account>& accounts) {
  table rows({"NAME", "ROLE", "GROUPS"});
  for (const auto& each : accounts) {
    rows.add({each.user_name(), each.role() == wire::admin::ROLE_ADMIN ? "admin" : "user",
              each.groups().empty() ? "all" : fmt::format("{}", fmt::join(each.groups(), ", "))});
  }
  return rows.empty() ? "  there is no account\n" : rows.text();
}

std::string group_usage_page(const message_list<wire::admin::InstanceGroup>& groups, const tagged_figures& figures) {
  table rows({"GROUP", ">USED", ">QUOTA", ">SHARE", ">DELETING", ">INSTANCES"});
  for (const auto& each : groups) {
    const double used = figures.value_of("cenote_manager_group_used_bytes", each.name());
    const auto quota = static_cast<double>(each.quota().capacity());
    rows.add(
        {each.name(), bytes_text(static_cast<std::int64_t>(used)), bytes_text(each.quota().capacity()),
         quota > 0 ? percent(used / quota) : "-",
         bytes_text(static_cast<std::int64_t>(figures.value_of("cenote_manager_group_deleting_bytes", each.name()))),
         fmt::format("{}", figures.value_of("cenote_manager_group_instances", each.name()))});
  }
  return rows.empty() ? "  there is no group\n" : rows.text();
}

std::string storage_usage_page(const wire::admin::ListStorageResponse& list, const tagged_figures& figures) {
  table rows({"STORAGE", ">USED", ">FREE", "HEALTH", ">DELETIONS", ">FAILED"});
  const auto count = [&](const char* figure, const std::string& storage) {
    return fmt::format("{}", figures.value_of(figure, storage));
  };
  for (int i = 0; i < list.storage_size(); ++i) {
    const std::string& name = list.storage(i).global_unique_name();
    const std::string health = i < list.health_size() ? list.health(i).condition() : "";
    const auto bytes = [&](const char* figure) {
      return bytes_text(static_cast<std::int64_t>(figures.value_of(figure, name)));
    };
    rows.add({name, bytes("cenote_manager_storage_used_bytes"), bytes("cenote_manager_storage_free_bytes"),
              or_dash(health), count("cenote_manager_storage_deletion_batches", name),
              count("cenote_manager_storage_failed_deletions_total", name)});
  }
  return rows.empty() ? "  there is no storage\n" : rows.text();
}

tagged_figures::tagged_figures(const message_list<wire::admin::MetricsData>& figures) {
  for (const auto& each : figures) {
    if (each.metric_tags().empty()) continue;
    const auto& value = each.metric_value();
    values_.try_emplace({each.metric_name(), each.metric_tags(0).tag_value()},
                        value.has_float_value() ? value.float_value() : static_cast<double>(value.int_value()));
  }
}

double tagged_figures::value_of(const std::string& figure, const std::string& tag) const {
  const auto found = values_.find({figure, tag});
  return found == values_.end() ? 0 : found->second;
}

std::string figures_page(const message_list<wire::admin::MetricsData>& figures) {
  table rows({"FIGURE", ">VALUE"});
  for (const auto& each : figures) {
    if (each.metric_tags().empty()) rows.add({each.metric_name(), value_text(each.metric_value())});
  }
  return rows.empty() ? "  there are no figures\n" : rows.text();
}

}  // namespace cenote::admin
