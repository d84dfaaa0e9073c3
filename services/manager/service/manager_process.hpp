// The manager as a service: its writer, its HTTP and gRPC servers, made from the configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/node_config.hpp"
#include "core/error.hpp"
#include "services/manager/service/call_desk.hpp"
#include "services/manager/service/grpc_face.hpp"
#include "services/manager/service/manager_writer.hpp"
#include "transport/grpc/rpc_server.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::manager {

/// One per process. Its own thread calls it; the threads that it starts have all signals blocked that the caller has.
class manager_process {
 public:
  /// Binds everything and begins; it answers SERVICE_NOT_READY until the journal is read. Errors: invalid_config, and
  /// those of request_server::bind() and rpc_server::start().
  [[nodiscard]] static result<std::unique_ptr<manager_process>> start(const config::node_config& config);
  manager_process(const manager_process&) = delete;
  manager_process& operator=(const manager_process&) = delete;
  ~manager_process() { stop(); }

  /// The services and their addresses: "MetaService over HTTP", its address.
  [[nodiscard]] const std::vector<std::pair<std::string, endpoint>>& addresses() const noexcept { return addresses_; }
  /// Answers what was asked, and ends within 5 s.
  void stop() noexcept;

 private:
  explicit manager_process(call_settings settings) : settings_(std::move(settings)) {}

  [[nodiscard]] result<> open_http(const config::manager_section& settings, rpc_face face, std::uint16_t port);
  [[nodiscard]] result<> open_grpc(const config::manager_section& settings, rpc_face face, std::uint16_t port);

  call_settings settings_;
  call_counts counts_;
  call_log log_;
  std::unique_ptr<call_trace> trace_;
  std::unique_ptr<access_desk> access_;
  std::shared_ptr<fault_table> faults_;
  std::unique_ptr<manager_writer> writer_;
  std::optional<face_parts> parts_;
  std::vector<std::unique_ptr<grpc_face>> faces_;
  std::vector<std::unique_ptr<http::request_server>> http_;
  std::vector<std::unique_ptr<::cenote::rpc::rpc_server>> grpc_;
  std::vector<std::pair<std::string, endpoint>> addresses_;
};

}  // namespace cenote::manager
