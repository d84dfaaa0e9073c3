#include "services/manager/service/call_desk.hpp"

#include <utility>

namespace cenote::manager {

std::expected<void, body_fault> call_desk::call(const rpc_row& row, answer_form form, std::string_view body,
                                                answer_receiver receive) {
  const bool is_meta = (row.service == rpc_service::meta && row.call != rpc::get_cluster_info) ||
                       row.call == rpc::admin_get_cache_meta ||
                       row.call == rpc::admin_remove_cache;
  if (is_meta) return meta_.call(row.call, form, body, {}, std::move(receive));
  return admin_.call(row.call, form, body, std::move(receive));
}

}  // namespace cenote::manager
