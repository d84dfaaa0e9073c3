#include "services/manager/service/admin_calls.hpp"

#include <chrono>
#include <cmath>
#include <utility>

#include "config/logging.hpp"
#include "services/manager/registry/config_snapshot.hpp"
#include "services/manager/service/registry_command.hpp"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace admin = proto::admin;

change_force force_of(bool is_forced) noexcept {
  return is_forced ? change_force::drops_locations : change_force::none;
}

std::unexpected<rpc_refusal> refuse_group(const std::string& name) {
  return refuse(answer_code::not_found, "there is no instance group " + name);
}

answer_writer unsupported(std::string_view name, std::string_view reason) {
  return refusal_answer<admin::CommonResponse>(
      {.code = answer_code::unsupported, .message = std::string(name) + " is not built: " + std::string(reason)});
}

void add_metric(admin::GetMetricsResponse& response, const std::string& name, double value,
                const http::metric_labels& labels) {
  admin::MetricsData& metric = *response.add_metrics();
  metric.set_metric_name(name);
  if (value == std::floor(value) && std::abs(value) < 9e15) {
    metric.mutable_metric_value()->set_int_value(static_cast<std::int64_t>(value));
  } else {
    metric.mutable_metric_value()->set_float_value(value);
  }
  for (const auto& label : labels) {
    auto& tag = *metric.add_metric_tags();
    tag.set_tag_key(label.name);
    tag.set_tag_value(label.value);
  }
}

/// Of a histogram its number and its sum.
void add_family(admin::GetMetricsResponse& response, const prometheus::MetricFamily& family) {
  for (const prometheus::ClientMetric& each : family.metric) {
    switch (family.type) {
      case prometheus::MetricType::Histogram:
        add_metric(response, family.name + "_count", static_cast<double>(each.histogram.sample_count), each.label);
        add_metric(response, family.name + "_sum", each.histogram.sample_sum, each.label);
        break;
      case prometheus::MetricType::Counter: add_metric(response, family.name, each.counter.value, each.label); break;
      default: add_metric(response, family.name, each.gauge.value, each.label); break;
    }
  }
}

}  // namespace

void admin_calls::edit(manager_writer& writer, registry_edit change, answer_receiver receive) {
  writer.post(std::make_unique<registry_command>(
      std::move(change), [receive = std::move(receive)](rpc_outcome<std::string> outcome) {
        if (!outcome) return receive(refusal_answer<admin::CommonResponse>(std::move(outcome.error())));
        receive(response_answer(admin::CommonResponse{}, std::move(*outcome)));
      }));
}

/// An account on its way into the registry.
struct admin_calls::account_work {
  manager_writer& writer;
  access_desk& access;
  std::shared_ptr<const admin::AddAccountRequest> request;
  answer_receiver receive;
  account_secret secret{};
  std::shared_ptr<const registered_account> stored{};  ///< that has this secret, or none; null: there was none
  bool is_late = false;                                ///< the account has changed since its secret was checked
  unsigned repetitions = 4;
};

/// The secret is made, or compared, where passwords are checked: the writer has no time for that. What the writer finds
/// changed goes there again.
void admin_calls::add_account(const std::shared_ptr<account_work>& work) {
  const bool has_room = work->access.post([work] {
    const manager_registry settings = work->writer.views().take()->settings;
    work->stored = settings.find_account(work->request->user_name());
    const auto secret = settings.secret_for(work->request->user_name(), work->request->password());
    if (!secret) return work->receive(refusal_answer<admin::CommonResponse>(secret.error()));
    work->secret = *secret;
    work->is_late = false;
    edit(
        work->writer,
        [work](const change_basis& basis) -> rpc_outcome<registry_change> {
          work->is_late = basis.settings.find_account(work->request->user_name()) != work->stored;
          if (work->is_late && work->repetitions > 0) return registry_change{.next = basis.settings};
          return basis.settings.add_account(*work->request, work->secret);
        },
        [work](answer_writer answer) {
          if (!work->is_late || work->repetitions == 0) return work->receive(std::move(answer));
          --work->repetitions;
          add_account(work);
        });
  });
  if (has_room) return;
  work->receive(refusal_answer<admin::CommonResponse>(
      {.code = answer_code::service_not_ready, .message = "too many passwords wait for their work; try again later"}));
}

void admin_calls::add_account(std::shared_ptr<const admin::AddAccountRequest> request, answer_receiver receive) {
  add_account(std::make_shared<account_work>(account_work{
      .writer = writer_, .access = access_, .request = std::move(request), .receive = std::move(receive)}));
}

void admin_calls::load_snapshot(const admin::LoadConfigSnapshotRequest& request, answer_receiver receive) {
  edit(
      [text = request.config_snapshot(),
       is_dry = request.dry_run()](const change_basis& basis) -> rpc_outcome<registry_change> {
        auto change = manager::load_snapshot(basis.settings, text, basis.use);
        if (change && is_dry) return registry_change{.next = basis.settings, .note = std::move(change->note)};
        return change;
      },
      std::move(receive));
}

void admin_calls::update_logger(const admin::UpdateLoggerRequest& request, const answer_receiver& receive) {
  const std::string levels =
      request.module_name().empty() ? request.log_level() : request.module_name() + "=" + request.log_level();
  if (const auto set = set_levels(levels); !set) {
    return receive(refusal_answer<admin::CommonResponse>(
        {.code = answer_code::invalid_argument, .message = "log_level: " + set.error().message()}));
  }
  receive(response_answer(admin::CommonResponse{}));
}

answer_writer admin_calls::list_instances(const admin::ListInstanceInfoRequest& request, const call_rights& rights) {
  admin::ListInstanceInfoResponse response;
  for (const auto& [id, entry] : views_.view()->settings.instances()) {
    const std::string& group = request.instance_group_name();
    if (!rights.may_see(entry->terms.group)) continue;
    if (group.empty() || entry->terms.group == group) *response.add_instance_info() = entry->info;
  }
  return response_answer(std::move(response));
}

answer_writer admin_calls::list_storages() {
  admin::ListStorageResponse response;
  const auto& view = *views_.view();
  for (const auto& [name, entry] : view.settings.storages()) {
    *response.add_storage() = entry->config;
    auto& health = *response.add_health();
    health.set_global_unique_name(name);
    const auto storage = view.storages == nullptr ? nullptr : (*view.storages)[entry->terms.number];
    if (storage == nullptr) continue;
    health.set_condition(std::string(name_of(storage->signal->condition())));
    health.set_reason(storage->signal->reason());
  }
  return response_answer(std::move(response));
}

answer_writer admin_calls::list_groups(const call_rights& rights) {
  admin::ListInstanceGroupResponse response;
  for (const auto& [name, entry] : views_.view()->settings.groups()) {
    if (rights.may_see(name)) *response.add_instance_group() = entry->group;
  }
  return response_answer(std::move(response));
}

answer_writer admin_calls::list_accounts() {
  admin::ListAccountResponse response;
  for (const auto& [name, entry] : views_.view()->settings.accounts()) *response.add_accounts() = entry->message();
  return response_answer(std::move(response));
}

answer_writer admin_calls::get_group(const admin::GetInstanceGroupRequest& request, const call_rights& rights) {
  const auto entry = views_.view()->settings.find_group(request.name());
  if (entry == nullptr || !rights.may_see(request.name())) {
    return refusal_answer<admin::GetInstanceGroupResponse>(refuse_group(request.name()).error());
  }
  admin::GetInstanceGroupResponse response;
  *response.mutable_instance_group() = entry->group;
  return response_answer(std::move(response));
}

answer_writer admin_calls::get_instance(const proto::GetInstanceInfoRequest& request, const call_rights& rights) {
  const auto entry = views_.view()->settings.find_instance(request.instance_id());
  if (entry == nullptr || !rights.may_see(entry->terms.group)) {
    return refusal_answer<admin::GetInstanceInfoResponse>(refuse_instance(request.instance_id()).error());
  }
  admin::GetInstanceInfoResponse response;
  *response.mutable_instance_info() = entry->info;
  return response_answer(std::move(response));
}

answer_writer admin_calls::get_metrics() {
  admin::GetMetricsResponse response;
  response.set_timestamp(unix_ms());
  const http::metric_families page = metrics();
  for (const prometheus::MetricFamily& family : page.families()) add_family(response, family);
  return response_answer(std::move(response));
}

page_sources admin_calls::sources(const usage_report& usage) {
  return {.figures = writer_.figures(),
          .usage = usage,
          .calls = counts_,
          .view = *views_.view(),
          .dropped_lines = trace_ == nullptr ? 0 : trace_->dropped()};
}

http::metric_families admin_calls::metrics() {
  return metrics_of(sources(*writer_.usage().take()));
}

void admin_calls::append_status(std::string& out) {
  manager::append_status(sources(*writer_.usage().take()), out);
}

answer_writer admin_calls::get_health() {
  admin::CheckHealthResponse response;
  response.set_is_leader(is_healthy());
  response.set_is_health(is_healthy());
  response.set_elector_last_loop_time_ms(unix_ms());
  return response_answer(std::move(response));
}

answer_writer admin_calls::get_cluster() {
  admin::GetManagerClusterInfoResponse response;
  response.set_info_updated_time(unix_ms());
  response.set_self_node_id(identity_.name);
  response.set_leader_node_id(identity_.name);
  admin::NodeEndpoint& leader = *response.mutable_leader_endpoint();
  leader.set_node_id(identity_.name);
  leader.set_host(identity_.host);
  leader.set_meta_rpc_port(identity_.meta_rpc_port);
  leader.set_meta_http_port(identity_.meta_http_port);
  leader.set_admin_rpc_port(identity_.admin_rpc_port);
  leader.set_admin_http_port(identity_.admin_http_port);
  return response_answer(std::move(response));
}

answer_writer admin_calls::get_meta_cluster() {
  proto::meta::GetClusterInfoResponse response;
  response.set_self_node_id(identity_.name);
  response.set_leader_node_id(identity_.name);
  auto& leader = *response.mutable_leader_endpoint();
  leader.set_node_id(identity_.name);
  leader.set_host(identity_.host);
  leader.set_meta_rpc_port(identity_.meta_rpc_port);
  leader.set_meta_http_port(identity_.meta_http_port);
  return response_answer(std::move(response));
}

std::expected<void, body_fault> admin_calls::call(enum rpc name, const call_body& body, const call_rights& rights,
                                                  answer_receiver receive) {
  // A change of the registry that its request alone decides.
  const auto change = [&]<class Request>(std::type_identity<Request> /*request*/, auto decide) {
    return with_shared_request<Request>(body, [&](const std::shared_ptr<const Request>& request) {
      edit([request, decide](const change_basis& basis) { return decide(basis, *request); }, std::move(receive));
    });
  };
  switch (name) {
    case rpc::add_storage:
      return change(std::type_identity<admin::AddStorageRequest>{}, [](const change_basis& basis, const auto& request) {
        return basis.settings.add_storage(request.storage());
      });
    case rpc::update_storage:
      return change(
          std::type_identity<admin::UpdateStorageRequest>{}, [](const change_basis& basis, const auto& request) {
            return basis.settings.update_storage(request.storage(), basis.use(request.storage().global_unique_name()),
                                                 force_of(request.force_update()));
          });
    case rpc::enable_storage:
      return change(std::type_identity<admin::EnableStorageRequest>{},
                    [](const change_basis& basis, const auto& request) {
                      return basis.settings.switch_storage(request.storage_unique_name(), storage_switch::enabled);
                    });
    case rpc::disable_storage:
      return change(std::type_identity<admin::DisableStorageRequest>{},
                    [](const change_basis& basis, const auto& request) {
                      return basis.settings.switch_storage(request.storage_unique_name(), storage_switch::disabled);
                    });
    case rpc::remove_storage:
      return change(
          std::type_identity<admin::RemoveStorageRequest>{}, [](const change_basis& basis, const auto& request) {
            return basis.settings.remove_storage(request.storage_unique_name(),
                                                 basis.use(request.storage_unique_name()), force_of(request.force()));
          });
    case rpc::create_instance_group:
      return change(std::type_identity<admin::CreateInstanceGroupRequest>{},
                    [rights](const change_basis& basis, const auto& request) -> rpc_outcome<registry_change> {
                      if (!rights.may_see(request.instance_group().name())) {
                        return refuse(answer_code::permission_denied, "the account is bound to other groups");
                      }
                      return basis.settings.create_group(request.instance_group());
                    });
    case rpc::update_instance_group:
      return change(std::type_identity<admin::UpdateInstanceGroupRequest>{},
                    [rights](const change_basis& basis, const auto& request) -> rpc_outcome<registry_change> {
                      const std::string& group = request.instance_group().name();
                      if (!rights.may_see(group)) return refuse_group(group);
                      return basis.settings.update_group(request.instance_group(), request.current_version());
                    });
    case rpc::remove_instance_group:
      return change(std::type_identity<admin::RemoveInstanceGroupRequest>{},
                    [rights](const change_basis& basis, const auto& request) -> rpc_outcome<registry_change> {
                      if (!rights.may_see(request.name())) return refuse_group(request.name());
                      return basis.settings.remove_group(request.name());
                    });
    case rpc::admin_register_instance:
      return change(std::type_identity<proto::RegisterInstanceRequest>{},
                    [rights](const change_basis& basis, const auto& request) -> rpc_outcome<registry_change> {
                      if (!rights.may_see(request.instance_group())) return refuse_group(request.instance_group());
                      return basis.settings.register_instance(request);
                    });
    case rpc::remove_instance:
      return change(std::type_identity<admin::RemoveInstanceRequest>{},
                    [rights](const change_basis& basis, const auto& request) -> rpc_outcome<registry_change> {
                      const auto entry = basis.settings.find_instance(request.instance_id());
                      if (entry != nullptr && !rights.may_see(entry->terms.group)) {
                        return refuse_instance(request.instance_id());
                      }
                      return basis.settings.remove_instance(request.instance_group(), request.instance_id());
                    });
    case rpc::delete_account:
      return change(std::type_identity<admin::DeleteAccountRequest>{},
                    [](const change_basis& basis, const auto& request) {
                      return basis.settings.delete_account(request.user_name());
                    });
    case rpc::add_account:
      return with_shared_request<admin::AddAccountRequest>(
          body, [&](const auto& request) { add_account(request, std::move(receive)); });
    case rpc::load_config_snapshot:
      return with_shared_request<admin::LoadConfigSnapshotRequest>(
          body, [&](const auto& request) { load_snapshot(*request, std::move(receive)); });
    default: return call_reading(name, body, rights, receive);
  }
}

std::expected<void, body_fault> admin_calls::call_reading(enum rpc name, const call_body& body,
                                                          const call_rights& rights, const answer_receiver& receive) {
  const auto answer = [&]<class Request>(std::type_identity<Request> /*request*/, auto make) {
    return with_shared_request<Request>(body, [&](const auto& request) { receive(make(*request)); });
  };
  switch (name) {
    case rpc::list_storage:
      return answer(std::type_identity<admin::ListStorageRequest>{}, [&](const auto&) { return list_storages(); });
    case rpc::list_instance_group:
      return answer(std::type_identity<admin::ListInstanceGroupRequest>{},
                    [&](const auto&) { return list_groups(rights); });
    case rpc::get_instance_group:
      return answer(std::type_identity<admin::GetInstanceGroupRequest>{},
                    [&](const auto& request) { return get_group(request, rights); });
    case rpc::admin_get_instance_info:
      return answer(std::type_identity<proto::GetInstanceInfoRequest>{},
                    [&](const auto& request) { return get_instance(request, rights); });
    case rpc::list_instance_info:
      return answer(std::type_identity<admin::ListInstanceInfoRequest>{},
                    [&](const auto& request) { return list_instances(request, rights); });
    case rpc::list_account:
      return answer(std::type_identity<admin::ListAccountRequest>{}, [&](const auto&) { return list_accounts(); });
    case rpc::gen_config_snapshot:
      return answer(std::type_identity<admin::GenConfigSnapshotRequest>{}, [&](const auto&) {
        admin::ConfigSnapShotResponse response;
        response.set_config_snapshot(make_snapshot(views_.view()->settings));
        return response_answer(std::move(response));
      });
    case rpc::get_metrics:
      return answer(std::type_identity<admin::GetMetricsRequest>{}, [&](const auto&) { return get_metrics(); });
    case rpc::check_health:
      return answer(std::type_identity<admin::CheckHealthRequest>{}, [&](const auto&) { return get_health(); });
    case rpc::get_cluster_info:
      return answer(std::type_identity<proto::meta::GetClusterInfoRequest>{},
                    [&](const auto&) { return get_meta_cluster(); });
    case rpc::get_manager_cluster_info:
      return answer(std::type_identity<admin::GetManagerClusterInfoRequest>{},
                    [&](const auto&) { return get_cluster(); });
    case rpc::update_logger:
      return with_shared_request<admin::UpdateLoggerRequest>(
          body, [&](const auto& request) { update_logger(*request, receive); });
    case rpc::get_leader_elector_config:
      return answer(std::type_identity<admin::GetLeaderElectorConfigRequest>{},
                    [&](const auto&) { return response_answer(admin::GetLeaderElectorConfigResponse{}); });
    default:
      find_trace_id(body);
      receive(unsupported(row_of(name).name, "one manager leads alone, and moves no blocks"));
      return {};
  }
}

}  // namespace cenote::manager
