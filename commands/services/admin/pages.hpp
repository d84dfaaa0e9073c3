// Entities of a manager as tables.
#pragma once

#include <string>

#include "commands/services/admin/session.hpp"

namespace cenote::admin {

template <class Message>
using message_list = google::protobuf::RepeatedPtrField<Message>;

[[nodiscard]] std::string storages_page(const message_list<wire::admin::StorageConfig>& storages);
[[nodiscard]] std::string groups_page(const message_list<wire::admin::InstanceGroup>& groups);
[[nodiscard]] std::string instances_page(const message_list<wire::InstanceInfo>& instances);
[[nodiscard]] std::string accounts_page(const message_list<wire::admin::Account>& accounts);
[[nodiscard]] std::string figures_page(const message_list<wire::admin::MetricsData>& figures);

}  // namespace cenote::admin
