// Entities of a manager as tables.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "commands/services/admin/session.hpp"

namespace cenote::admin {

template <class Message>
using message_list = google::protobuf::RepeatedPtrField<Message>;

[[nodiscard]] std::string storages_page(const message_list<wire::admin::StorageConfig>& storages);
[[nodiscard]] std::string groups_page(const message_list<wire::admin::InstanceGroup>& groups);
[[nodiscard]] std::string instances_page(const message_list<wire::InstanceInfo>& instances);
[[nodiscard]] std::string accounts_page(const message_list<wire::admin::Account>& accounts);
/// Those that stand for the whole manager.
[[nodiscard]] std::string figures_page(const message_list<wire::admin::MetricsData>& figures);

/// Figures of groups and storages, by the value of their first tag.
class tagged_figures {
 public:
  explicit tagged_figures(const message_list<wire::admin::MetricsData>& figures);

  /// 0: there is none.
  [[nodiscard]] double value_of(const std::string& figure, const std::string& tag) const;

 private:
  std::map<std::pair<std::string, std::string>, double> values_;
};

[[nodiscard]] std::string group_usage_page(const message_list<wire::admin::InstanceGroup>& groups,
                                           const tagged_figures& figures);
[[nodiscard]] std::string storage_usage_page(const wire::admin::ListStorageResponse& list,
                                             const tagged_figures& figures);

}  // namespace cenote::admin
