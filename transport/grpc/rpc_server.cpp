#include "transport/grpc/rpc_server.hpp"

#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "transport/grpc/connection_gate.hpp"
#include "transport/grpc/server_call.hpp"
#include "transport/http/bearer_token.hpp"
#include "transport/http/listening_sockets.hpp"

namespace cenote::rpc {

namespace {

/// A call that ends before its request is read; gRPC deletes it.
class refused_call final : public grpc::ServerGenericBidiReactor {
 public:
  refused_call(call_status status, std::string reason) {
    Finish(grpc::Status(static_cast<grpc::StatusCode>(status), std::move(reason)));
  }
  void OnDone() override { delete this; }
};

/// Bytes of clients write no line; a broken assertion in the library does.
void write_fatal_lines(gpr_log_func_args* line) {
  const std::string_view text(line->message);
  if (text.contains("assertion failed"))
    std::fprintf(stderr, "gRPC: %s:%d: %s\n", line->file, line->line, line->message);
}

result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) return fail(error_code::invalid_argument, path + " cannot be read");
  return text;
}

result<std::shared_ptr<grpc::ServerCredentials>> credentials_of(const http::tls_files& files) {
  if (files.certificate.empty()) return grpc::InsecureServerCredentials();
  const auto certificate = read_file(files.certificate);
  if (!certificate) return std::unexpected(certificate.error());
  const auto key = read_file(files.key);
  if (!key) return std::unexpected(key.error());
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({.private_key = *key, .cert_chain = *certificate});
  if (!files.client_ca.empty()) {
    auto authorities = read_file(files.client_ca);
    if (!authorities) return std::unexpected(authorities.error());
    options.pem_root_certs = std::move(*authorities);
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(options);
}

int milliseconds_of(std::chrono::milliseconds time) noexcept {
  return static_cast<int>(time.count());
}

void set_limits(grpc::ServerBuilder& builder, const rpc_server_limits& limits) {
  constexpr int threads = 64;
  constexpr int metadata = 16 * 1024;        // bytes of a call's headers
  constexpr int keepalive_time = 60'000;     // ms without bytes, after which a peer is asked for a sign
  constexpr int keepalive_timeout = 20'000;  // ms for that sign
  constexpr int least_ping_pause = 10'000;   // ms between a client's own questions
  grpc::ResourceQuota quota("cenote");
  quota.Resize(limits.buffers).SetMaxThreads(threads);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.message));
  // A small message that becomes a large one has no bound.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, metadata);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds_of(limits.handshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds_of(limits.idle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, milliseconds_of(limits.age));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_time);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_timeout);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, least_ping_pause);
}

}  // namespace

/// gRPC's server, the connections that it is given, and its calls.
class rpc_server::running_server final : public grpc::CallbackGenericService {
 public:
  running_server(const rpc_server_options& options, call_handler& handler)
      : options_(options), handler_(handler), calls_(options.limits.calls) {}

  [[nodiscard]] result<void> start(std::vector<unique_fd> listeners);
  void stop() noexcept;

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  [[nodiscard]] bool has_token(const grpc::GenericCallbackServerContext& context) const;

  const rpc_server_options& options_;
  call_handler& handler_;
  call_table calls_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<connection_gate> gate_;
};

result<void> rpc_server::running_server::start(std::vector<unique_fd> listeners) {
  auto gate = connection_gate::open(std::move(listeners), options_.limits.connections);
  if (!gate) return std::unexpected(gate.error());
  auto credentials = credentials_of(options_.tls);
  if (!credentials) return std::unexpected(credentials.error());
  grpc::ServerBuilder builder;
  set_limits(builder, options_.limits);
  builder.RegisterCallbackGenericService(this);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(*credentials));
  server_ = builder.BuildAndStart();
  if (!server_) {
    return fail(error_code::invalid_argument, options_.tls.certificate + " and " + options_.tls.key +
                                                  " cannot be used as a certificate and its key (PEM)");
  }
  gate_.emplace(std::move(*gate));
  gate_->start({.connection =
                    [this](unique_fd connection) {
                      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters given;
                      given.fd = connection.release();
                      acceptor_->HandleNewConnection(&given);
                    },
                .tick = [this] { calls_.cancel_late(); }});
  return {};
}

void rpc_server::running_server::stop() noexcept {
  if (gate_) gate_->stop();
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + options_.limits.stop);
  server_.reset();
}

bool rpc_server::running_server::has_token(const grpc::GenericCallbackServerContext& context) const {
  if (options_.token.empty()) return true;
  const auto& headers = context.client_metadata();
  const auto found = headers.find("authorization");
  const grpc::string_ref sent = found == headers.end() ? grpc::string_ref() : found->second;
  return http::has_bearer_token({sent.data(), sent.size()}, options_.token);
}

grpc::ServerGenericBidiReactor* rpc_server::running_server::CreateReactor(grpc::GenericCallbackServerContext* context) {
  if (!has_token(*context)) {
    return new refused_call(call_status::unauthenticated, std::string(http::missing_token));
  }
  if (!handler_.has_method(context->method())) {
    return new refused_call(call_status::unimplemented, "there is no method " + context->method());
  }
  const auto call = std::make_shared<server_call>(calls_, handler_, options_.limits, *context);
  if (!calls_.add(call)) {
    return new refused_call(call_status::resource_exhausted, "too many calls are under way; try again");
  }
  call->start();
  return call.get();
}

result<std::unique_ptr<rpc_server>> rpc_server::start(rpc_server_options options, call_handler& handler) {
  gpr_set_log_function(write_fatal_lines);
  std::unique_ptr<rpc_server> server(new rpc_server(std::move(options)));
  std::vector<unique_fd> listeners;
  for (endpoint& each : server->options_.addresses) {
    auto socket = http::listen_tcp(each);
    if (!socket) return std::unexpected(socket.error());
    listeners.push_back(std::move(*socket));
  }
  server->server_ = std::make_unique<running_server>(server->options_, handler);
  if (auto started = server->server_->start(std::move(listeners)); !started) return std::unexpected(started.error());
  return server;
}

rpc_server::rpc_server(rpc_server_options options) : options_(std::move(options)) {}

rpc_server::~rpc_server() {
  stop();
}

void rpc_server::stop() noexcept {
  if (server_) server_->stop();
}

}  // namespace cenote::rpc
