// The calls of AdminService.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "services/manager/service/access_desk.hpp"
#include "services/manager/service/call_answer.hpp"
#include "services/manager/service/call_rights.hpp"
#include "services/manager/service/call_trace.hpp"
#include "services/manager/service/manager_page.hpp"
#include "services/manager/service/manager_writer.hpp"
#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

namespace proto = ::kv_cache_manager::proto;

/// This manager's name and addresses, for those that ask for them.
struct manager_identity {
  std::string name{};
  std::string host{};
  int meta_rpc_port = 0, meta_http_port = 0, admin_rpc_port = 0, admin_http_port = 0;  ///< 0: that face is off
};

/// Answers on one thread at a time; changes go through the writer. Each thread has its own.
class admin_calls {
 public:
  /// `trace`: null, calls are not written down. All outlive it.
  admin_calls(manager_writer& writer, access_desk& access, const call_counts& counts, const call_trace* trace,
              const manager_identity& identity)
      : writer_(writer), views_(writer.views()), access_(access), counts_(counts), trace_(trace), identity_(identity) {}

  /// Errors: the body was not understood; then nothing is answered.
  [[nodiscard]] std::expected<void, body_fault> call(enum rpc name, const call_body& body, const call_rights& rights,
                                                     answer_receiver receive);
  /// The manager has recovered and takes requests, from accounts where they are needed.
  [[nodiscard]] bool is_healthy() {
    const served_view& view = *views_.view();
    return view.is_ready && access_.control().is_ready(view.settings);
  }
  [[nodiscard]] http::metric_families metrics();
  void append_status(std::string& out);

 private:
  [[nodiscard]] std::expected<void, body_fault> call_reading(enum rpc name, const call_body& body,
                                                             const call_rights& rights, const answer_receiver& receive);
  /// For one page, while `usage` is there.
  [[nodiscard]] page_sources sources(const usage_report& usage);
  void edit(registry_edit change, answer_receiver receive) { edit(writer_, std::move(change), std::move(receive)); }
  static void edit(manager_writer& writer, registry_edit change, answer_receiver receive);
  void add_account(std::shared_ptr<const proto::admin::AddAccountRequest> request, answer_receiver receive);
  struct account_work;
  static void add_account(const std::shared_ptr<account_work>& work);
  void load_snapshot(const proto::admin::LoadConfigSnapshotRequest& request, answer_receiver receive);
  void update_logger(const proto::admin::UpdateLoggerRequest& request, const answer_receiver& receive);
  [[nodiscard]] answer_writer list_instances(const proto::admin::ListInstanceInfoRequest& request,
                                             const call_rights& rights);
  [[nodiscard]] answer_writer list_storages();
  [[nodiscard]] answer_writer list_groups(const call_rights& rights);
  [[nodiscard]] answer_writer list_accounts();
  [[nodiscard]] answer_writer get_group(const proto::admin::GetInstanceGroupRequest& request,
                                        const call_rights& rights);
  [[nodiscard]] answer_writer get_instance(const proto::GetInstanceInfoRequest& request, const call_rights& rights);
  [[nodiscard]] answer_writer get_metrics();
  [[nodiscard]] answer_writer get_health();
  [[nodiscard]] answer_writer get_cluster();
  [[nodiscard]] answer_writer get_meta_cluster();

  manager_writer& writer_;
  view_reader views_;
  access_desk& access_;
  const call_counts& counts_;
  const call_trace* trace_;
  const manager_identity& identity_;
};

}  // namespace cenote::manager
