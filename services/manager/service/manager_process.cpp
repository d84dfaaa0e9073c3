#include "services/manager/service/manager_process.hpp"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "config/manager_rules.hpp"
#include "core/random_number.hpp"
#include "services/manager/service/bootstrap.hpp"
#include "services/manager/service/first_account.hpp"
#include "services/manager/service/http_face.hpp"
#include "services/manager/service/journal_choice.hpp"
#include "services/manager/service/own_host.hpp"

namespace cenote::manager {

namespace {

constexpr std::size_t most_threads = 4;  ///< of a port, unless more are configured

template <class Duration>
Duration duration_of(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<Duration>(time);
}

std::map<storage_type, std::string> plugins_of(const config::manager_section& settings) {
  std::map<storage_type, std::string> commands;
  for (const std::string& each : settings.plugins) {
    const auto [name, program] = config::split_plugin(each);
    if (const storage_kind* const kind = find_kind_of_plugin(name)) commands.emplace(kind->type, program);
  }
  return commands;
}

/// Errors: invalid_config: `debug.kill_at` names no point of a manager.
result<std::shared_ptr<fault_table>> faults_of(const config::debug_section& debug) {
  if (!debug.enabled) return std::shared_ptr<fault_table>();
  auto faults = std::make_shared<fault_table>();
  for (const std::string& kill : debug.kill_at) {
    if (const auto injected = faults->inject_kill(kill); !injected) {
      return fail(error_code::invalid_config, "debug.kill_at: " + injected.error().message());
    }
  }
  return faults;
}

/// Makes the folder of the state, too.
result<registry_edit> bootstrap_of(const config::manager_section& settings, const std::string& state_dir) {
  std::error_code made;
  std::filesystem::create_directories(state_dir, made);
  if (made) return fail_errno(made.value(), "mkdir", state_dir);
  auto bootstrap = bootstrap_edit(settings.bootstrap, state_dir);
  if (bootstrap && config::needs_accounts(settings)) return with_first_account(std::move(*bootstrap), state_dir);
  return bootstrap;
}

writer_options writer_options_of(const config::manager_section& settings, journal_opener open_journal,
                                 registry_edit bootstrap, std::shared_ptr<fault_table> faults) {
  return {.open_journal = std::move(open_journal),
          .writes = {.write_timeout = duration_of<std::chrono::seconds>(settings.write_timeout),
                     .max_write_timeout = duration_of<std::chrono::seconds>(settings.max_write_timeout),
                     .quarantine = duration_of<std::chrono::milliseconds>(settings.quarantine)},
          .storages = {.probe_interval = duration_of<std::chrono::milliseconds>(settings.probe_interval),
                       .probe_timeout = duration_of<std::chrono::milliseconds>(settings.probe_timeout)},
          .bootstrap = std::move(bootstrap),
          .name = std::to_string(random_number()),
          .plugins = plugins_of(settings),
          .faults = std::move(faults)};
}

call_settings call_settings_of(const config::manager_section& settings) {
  const bool is_first = settings.read_choice == config::storage_choice::first;
  return {.limits = {.keys = settings.max_keys},
          .choice = is_first ? read_choice::first : read_choice::weighted,
          .identity = {.name = settings.name,
                       .host = own_host(settings),
                       .meta_rpc_port = settings.meta_rpc_port,
                       .meta_http_port = settings.meta_http_port,
                       .admin_rpc_port = settings.admin_rpc_port,
                       .admin_http_port = settings.admin_http_port}};
}

access_settings access_settings_of(const config::manager_section& settings) {
  return {.need = config::needs_accounts(settings) ? account_need::all : account_need::none,
          .rates = {.requests = settings.rate_requests, .keys = settings.rate_keys},
          .most_bytes = settings.max_in_flight};
}

/// Bytes of clients write no line; a broken assertion in the library does.
void write_fatal_line(google::protobuf::LogLevel level, const char* file, int line, const std::string& text) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    std::fprintf(stderr, "protobuf: %s:%d: %s\n", file, line, text.c_str());
  }
}

http::tls_files tls_of(const config::manager_section& settings) {
  return {.certificate = settings.tls_cert, .key = settings.tls_key, .client_ca = settings.tls_client_ca};
}

std::string service_name(rpc_face face) {
  return face == rpc_face::meta ? "MetaService" : "AdminService";
}

}  // namespace

result<> manager_process::open_http(const config::manager_section& settings, rpc_face face, std::uint16_t port) {
  if (port == 0) return {};
  const std::size_t threads =
      settings.threads != 0 ? settings.threads
                            : std::min<std::size_t>(most_threads, std::max(1U, std::thread::hardware_concurrency()));
  auto server = http::request_server::bind({.addresses = {{.host = settings.host, .port = port}},
                                            .tls = tls_of(settings),
                                            .threads = threads,
                                            .limits = {.buffers = settings.max_in_flight}});
  if (!server) return std::unexpected(server.error());
  (*server)->serve([this, face] { return std::make_unique<http_face>(face, *parts_); });
  for (const endpoint& each : (*server)->addresses()) addresses_.emplace_back(service_name(face) + " over HTTP", each);
  http_.push_back(std::move(*server));
  return {};
}

result<> manager_process::open_grpc(const config::manager_section& settings, rpc_face face, std::uint16_t port) {
  if (port == 0) return {};
  faces_.push_back(std::make_unique<grpc_face>(face, *parts_));
  auto server = ::cenote::rpc::rpc_server::start(
      {.addresses = {{.host = settings.host, .port = port}}, .tls = tls_of(settings)}, *faces_.back());
  if (!server) return std::unexpected(server.error());
  for (const endpoint& each : (*server)->addresses()) addresses_.emplace_back(service_name(face) + " over gRPC", each);
  grpc_.push_back(std::move(*server));
  return {};
}

result<std::unique_ptr<manager_process>> manager_process::start(const config::node_config& config) {
  if (auto checked = config::check_manager(config); !checked) return std::unexpected(checked.error());
  const config::manager_section& settings = config.manager;
  const std::string state_dir = config::manager_state_dir(config);
  auto open_journal = journal_opener_of(settings, state_dir);
  if (!open_journal) return std::unexpected(open_journal.error());
  auto faults = faults_of(config.debug);
  if (!faults) return std::unexpected(faults.error());
  auto bootstrap = bootstrap_of(settings, state_dir);
  if (!bootstrap) return std::unexpected(bootstrap.error());
  google::protobuf::SetLogHandler(write_fatal_line);
  std::unique_ptr<manager_process> process(new manager_process(call_settings_of(settings)));
  if (!settings.trace_file.empty()) {
    auto trace = call_trace::open(settings.trace_file);
    if (!trace) return std::unexpected(trace.error());
    process->trace_ = std::move(*trace);
  }
  process->access_ = std::make_unique<access_desk>(access_settings_of(settings));
  process->faults_ = *faults;
  process->writer_ = std::make_unique<manager_writer>(
      writer_options_of(settings, std::move(*open_journal), std::move(*bootstrap), *faults));
  process->parts_.emplace(face_parts{.writer = *process->writer_,
                                     .access = *process->access_,
                                     .counts = process->counts_,
                                     .log = process->log_,
                                     .trace = process->trace_.get(),
                                     .settings = process->settings_,
                                     .faults = process->faults_.get()});
  for (const auto& [face, rpc_port, http_port] :
       {std::tuple(rpc_face::meta, settings.meta_rpc_port, settings.meta_http_port),
        std::tuple(rpc_face::admin, settings.admin_rpc_port, settings.admin_http_port)}) {
    if (auto opened = process->open_http(settings, face, http_port); !opened) return std::unexpected(opened.error());
    if (auto opened = process->open_grpc(settings, face, rpc_port); !opened) return std::unexpected(opened.error());
  }
  return process;
}

void manager_process::stop() noexcept {
  // The desk and the writer last: they answer what the servers wait for.
  for (const auto& server : http_) server->stop();
  for (const auto& server : grpc_) server->stop();
  if (access_ != nullptr) access_->stop();
  if (writer_ != nullptr) writer_->stop();
  http_.clear();
  grpc_.clear();
}

}  // namespace cenote::manager
