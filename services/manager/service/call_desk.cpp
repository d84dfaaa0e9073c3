#include "services/manager/service/call_desk.hpp"

#include <chrono>
#include <utility>

namespace cenote::manager {

std::expected<void, body_fault> call_desk::call(const rpc_row& row, answer_form form, std::string_view body,
                                                const call_access& access, answer_receiver receive) {
  if (auto failure = debug_.failure_of(row)) {
    receive(std::move(*failure));
    return {};
  }
  if (row.service == rpc_service::debug) return debug_.call(row.call, form, body, receive);
  const bool is_meta = (row.service == rpc_service::meta && row.call != rpc::get_cluster_info) ||
                       row.call == rpc::admin_get_cache_meta || row.call == rpc::admin_remove_cache;
  if (!is_meta) return admin_.call(row.call, form, body, access.rights, std::move(receive));
  auto outcome = meta_.call(row.call, form, body, access.rights, std::move(receive));
  parts_.access.control().charge_keys(access, meta_.take_key_count(), std::chrono::steady_clock::now());
  return outcome;
}

}  // namespace cenote::manager
