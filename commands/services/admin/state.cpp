// The manager itself: status, leadership, snapshots, what it logs.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/services/admin/pages.hpp"
#include "commands/services/admin/session.hpp"
#include "core/text.hpp"
#include "core/whole_file.hpp"

namespace cenote::admin {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto status_pause = 1s;

struct manager_status {
  wire::admin::GetManagerClusterInfoResponse cluster;
  wire::admin::CheckHealthResponse health;
  wire::admin::ListInstanceGroupResponse groups;
  wire::admin::ListInstanceInfoResponse instances;
  wire::admin::ListStorageResponse storages;
  wire::admin::GetMetricsResponse figures;
};

template <class Request, class Answer>
result<> fetch(const admin_session& session, enum rpc name, Answer& place) {
  auto answer = session.ask<Answer>(name, Request());
  if (!answer) return std::unexpected(answer.error());
  place = std::move(*answer);
  return {};
}

result<manager_status> look(const admin_session& session) {
  manager_status status;
  const auto questions = {
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::GetManagerClusterInfoRequest>(s, rpc::get_manager_cluster_info, out.cluster);
      },
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::CheckHealthRequest>(s, rpc::check_health, out.health);
      },
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::ListInstanceGroupRequest>(s, rpc::list_instance_group, out.groups);
      },
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::ListInstanceInfoRequest>(s, rpc::list_instance_info, out.instances);
      },
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::ListStorageRequest>(s, rpc::list_storage, out.storages);
      },
      +[](const admin_session& s, manager_status& out) {
        return fetch<wire::admin::GetMetricsRequest>(s, rpc::get_metrics, out.figures);
      },
  };
  for (const auto& question : questions) {
    if (auto answer = question(session, status); !answer) return std::unexpected(answer.error());
  }
  return status;
}

json status_json(const manager_status& status) {
  return {
      {"cluster", without_header(status.cluster)},           {"health", without_header(status.health)},
      {"groups", list_json(status.groups.instance_group())}, {"instances", list_json(status.instances.instance_info())},
      {"storages", list_json(status.storages.storage())},    {"metrics", list_json(status.figures.metrics())}};
}

std::string leader_line(const wire::admin::GetManagerClusterInfoResponse& cluster) {
  const auto& leader = cluster.leader_endpoint();
  const std::string name = cluster.leader_node_id().empty() ? "" : " " + cluster.leader_node_id();
  if (leader.host().empty()) return "leader    none\n";
  return fmt::format("leader   {} at {}: meta {} (gRPC), {} (HTTP), admin {} (gRPC), {} (HTTP)\n", printable(name),
                     printable(leader.host()), leader.meta_rpc_port(), leader.meta_http_port(), leader.admin_rpc_port(),
                     leader.admin_http_port());
}

std::string health_line(const wire::admin::CheckHealthResponse& health) {
  return fmt::format("asked     {}, {}\n", health.is_leader() ? "it leads" : "it does not lead",
                     health.is_health() ? "healthy" : "not healthy");
}

std::string instances_line(const manager_status& status) {
  std::map<std::string, int> counts;
  for (const auto& each : status.instances.instance_info()) ++counts[each.instance_group_name()];
  std::string text;
  for (const auto& [group, count] : counts) {
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", count, printable(group));
  }
  return fmt::format("instances {}\n", text.empty() ? "none" : text);
}

std::string status_page(const manager_status& status) {
  const tagged_figures figures(status.figures.metrics());
  const auto& groups = status.groups.instance_group();
  const auto& storages = status.storages.storage();
  return leader_line(status.cluster) + health_line(status.health) + instances_line(status) + "groups\n" +
         groups_page(groups) + "storages\n" + storages_page(storages) + "used\n" + group_usage_page(groups, figures) +
         storage_usage_page(status.storages, figures) + "figures\n" + figures_page(status.figures.metrics());
}

/// With --watch a manager that goes away is waited for.
result<> show_status(admin_session& session, bool is_watching) {
  if (is_watching) watch_for_interruption();
  for (;;) {
    const auto status = look(session);
    if (!status && !is_watching) return std::unexpected(status.error());
    if (is_watching && !session.is_json()) clear_screen();
    if (!status) {
      complain(status.error());
    } else if (session.is_json()) {
      fmt::print("{}\n", status_json(*status).dump(is_watching ? -1 : 2, ' ', true, json::error_handler_t::replace));
    } else {
      fmt::print("{}", status_page(*status));
    }
    std::fflush(stdout);
    if (!is_watching || interrupted()) return {};
    std::this_thread::sleep_for(status_pause);
    if (interrupted()) return {};
  }
}

result<> show_leader(admin_session& session) {
  manager_status status;
  auto outcome =
      fetch<wire::admin::GetManagerClusterInfoRequest>(session, rpc::get_manager_cluster_info, status.cluster);
  if (outcome) outcome = fetch<wire::admin::CheckHealthRequest>(session, rpc::check_health, status.health);
  if (!outcome) return outcome;
  if (session.is_json()) {
    print_json({{"cluster", without_header(status.cluster)}, {"health", without_header(status.health)}});
  } else {
    fmt::print("{}{}", leader_line(status.cluster), health_line(status.health));
  }
  return {};
}

result<> demote(admin_session& session) {
  return session.change(rpc::leader_demote, wire::admin::LeaderDemoteRequest(), "the leader leads no more");
}

result<> save_snapshot(admin_session& session, const std::string& path) {
  const auto answer = session.ask<wire::admin::ConfigSnapShotResponse>(rpc::gen_config_snapshot,
                                                                       wire::admin::GenConfigSnapshotRequest());
  if (!answer) return std::unexpected(answer.error());
  if (path == "-") {
    fmt::print("{}\n", answer->config_snapshot());
    return {};
  }
  const std::string text = answer->config_snapshot() + "\n";
  if (auto written = replace_whole(path, std::as_bytes(std::span(text))); !written) return written;
  session.print_change(fmt::format("{} bytes are in {}", text.size(), path), {});
  return {};
}

result<> load_snapshot(admin_session& session, const std::string& path, bool is_dry) {
  auto text = read_input(path);
  if (!text) return std::unexpected(text.error());
  wire::admin::LoadConfigSnapshotRequest request;
  request.set_config_snapshot(std::move(*text));
  request.set_dry_run(is_dry);
  const auto answer = session.ask<wire::admin::CommonResponse>(rpc::load_config_snapshot, request);
  if (!answer) return std::unexpected(answer.error());
  const std::string& note = answer->header().status().message();
  if (note.empty()) {
    session.print_change("the manager has all of it already", note);
  } else {
    session.print_change(is_dry ? "nothing is changed; it would be:" : "the snapshot is loaded:", note);
  }
  return {};
}

result<> set_levels(admin_session& session, const std::string& level, const std::string& module) {
  wire::admin::UpdateLoggerRequest request;
  request.set_log_level(level);
  request.set_module_name(module);
  return session.change(
      rpc::update_logger, request,
      fmt::format("{} logs at {} until it is reloaded or restarted", module.empty() ? "the manager" : module, level));
}

}  // namespace

void add_status(CLI::App& admin) {
  const auto is_watching = std::make_shared<bool>(false);
  add_action(admin, "status", "The leader, groups, storages and figures", [is_watching](admin_session& s) {
    return show_status(s, *is_watching);
  }).add_flag("--watch", *is_watching, "Again each second, until Ctrl-C; with --json a line a second");
}

void add_leader(CLI::App& admin) {
  CLI::App& family = add_family(admin, "leader", "The manager that leads");
  add_action(family, "show", "Its address, and whether the manager that answers leads", show_leader);
  add_action(family, "demote", "Another one leads", demote);
}

void add_snapshot(CLI::App& admin) {
  CLI::App& family = add_family(admin, "snapshot", "All storages, groups, instances and accounts, without secrets");
  const auto path = std::make_shared<std::string>();
  add_action(family, "save", "Writes them to a file", [path](admin_session& s) { return save_snapshot(s, *path); })
      .add_option("file", *path, "- for standard output")
      ->required();
  const auto is_dry = std::make_shared<bool>(false);
  CLI::App& load = add_action(family, "load", "Adds and updates what a file has; all of it or nothing",
                              [path, is_dry](admin_session& s) { return load_snapshot(s, *path, *is_dry); });
  load.add_option("file", *path, "- for standard input")->required();
  load.add_flag("--dry-run", *is_dry, "Changes nothing, and prints what would change");
}

void add_levels(CLI::App& admin) {
  const auto level = std::make_shared<std::string>();
  const auto module = std::make_shared<std::string>();
  CLI::App& command = add_action(admin, "log-level", "Change what a running manager logs",
                                 [level, module](admin_session& s) { return set_levels(s, *level, *module); });
  command.add_option("level", *level, "As the key log.level: \"info\"")->required();
  command.add_option("module", *module, "One logger alone");
}

}  // namespace cenote::admin
