// Lookups over gRPC and over HTTP on loopback, beside echoes of the same bytes and beside Redis.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "commands/bench/bare_http.hpp"
#include "commands/bench/manager/bare_mget.hpp"
#include "commands/bench/manager/bare_rpc.hpp"
#include "commands/bench/manager/rows.hpp"
#include "services/manager/service/grpc_face.hpp"
#include "services/manager/service/http_face.hpp"
#include "transport/grpc/rpc_server.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::bench {

namespace {

using namespace manager;
namespace meta = proto::meta;

const endpoint any_port{.host = "127.0.0.1"};

meta::GetCacheLocationRequest prefix_request(const row_context& context, unsigned round) {
  return chain_request<meta::GetCacheLocationRequest>(chain_kind::one_spec, mixed(round) % context.chains);
}

/// The answer of some chain; those of others are as long, but for some digits.
result<std::string> some_answer(const row_context& context, answer_form form) {
  const auto response = context.manager.call<meta::GetCacheLocationResponse>(manager::rpc::get_cache_location,
                                                                             prefix_request(context, 0));
  if (!response) return std::unexpected(response.error());
  if (response->locations_size() != int{chain_keys}) return fail(error_code::internal, "a chain is not there");
  std::string answer;
  append_message(*response, form, answer);
  return answer;
}

result<void> check_length(std::size_t measured, std::size_t expected) {
  if (measured + expected / 10 > expected && measured < expected + expected / 10) return {};
  return fail(error_code::internal, "an answer over the network has another length than one in the process");
}

/// Answers each request with some bytes.
class echo_handler final : public http::request_handler {
 public:
  explicit echo_handler(std::string answer) : answer_(std::move(answer)) {}
  void handle(const http::http_request&, http::http_reply& reply) override { reply.body = answer_; }

 private:
  std::string answer_;
};

result<std::unique_ptr<http::request_server>> serve_http(const http::handler_factory& make_handler) {
  auto server = http::request_server::bind({.addresses = {any_port}, .threads = 1});
  if (server) (*server)->serve(make_handler);
  return server;
}

std::string http_text(const std::string& body) {
  return "POST " + std::string(row_of(manager::rpc::get_cache_location).json_path) +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

result<void> find_over_grpc(const row_context& context) {
  const auto answer = some_answer(context, answer_form::wire);
  if (!answer) return std::unexpected(answer.error());
  grpc_face face(rpc_face::meta, context.manager.parts());
  const auto server = ::cenote::rpc::rpc_server::start({.addresses = {any_port}}, face);
  if (!server) return std::unexpected(server.error());
  const auto echo_server = echo_rpc_server::start(*answer);
  if (!echo_server) return std::unexpected(echo_server.error());
  bare_rpc_client client((*server)->addresses().front()), echo((*echo_server)->address());
  const std::string method(row_of(manager::rpc::get_cache_location).grpc_path);
  grpc::ByteBuffer request;
  std::optional<bare_mget> redis;
  if (context.redis != nullptr) {
    auto connected = bare_mget::connect(context.redis->socket());
    if (!connected) return std::unexpected(connected.error());
    redis.emplace(std::move(*connected));
  }
  std::vector<timed_side> sides;
  sides.push_back({.run = [&] { return client.call(method, request); }});
  sides.push_back({.run = [&] { return echo.call(method, request); }});
  if (redis) sides.push_back({.run = [&] { return redis->call(); }});
  const auto prepare = [&](unsigned round) {
    std::string body;
    append_message(prefix_request(context, round), answer_form::wire, body);
    const grpc::Slice bytes(body);
    request = grpc::ByteBuffer(&bytes, 1);
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return timed;
  if (auto checked = check_length(client.answer().size(), answer->size()); !checked) return checked;
  context.out.add_time("that prefix over gRPC, unparsed, beside an echo of the same bytes", sides[0].times,
                       sides[1].times, {bound::kind::difference_at_most, 200});
  if (redis) {
    context.out.add_time("that prefix over gRPC, beside MGET of 1,000 values of 64 bytes", sides[0].times,
                         sides[2].times, {bound::kind::ratio_at_most, 1});
  }
  return {};
}

result<void> find_over_http(const row_context& context) {
  const auto answer = some_answer(context, answer_form::json);
  if (!answer) return std::unexpected(answer.error());
  const auto server = serve_http([&] { return std::make_unique<http_face>(rpc_face::meta, context.manager.parts()); });
  if (!server) return std::unexpected(server.error());
  const auto echo_server = serve_http([&] { return std::make_unique<echo_handler>(*answer); });
  if (!echo_server) return std::unexpected(echo_server.error());
  auto client = bare_http_client::connect((*server)->addresses().front());
  if (!client) return std::unexpected(client.error());
  auto echo = bare_http_client::connect((*echo_server)->addresses().front());
  if (!echo) return std::unexpected(echo.error());
  std::string request;
  std::array<timed_side, 2> sides;
  sides[0].run = [&] { return client->exchange(request); };
  sides[1].run = [&] { return echo->exchange(request); };
  const auto prepare = [&](unsigned round) {
    std::string body;
    append_message(prefix_request(context, round), answer_form::json, body);
    request = http_text(body);
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return timed;
  if (auto checked = check_length(client->answer().size(), answer->size()); !checked) return checked;
  context.out.add_time("that prefix over HTTP, JSON, beside an echo of the same bytes", sides[0].times, sides[1].times,
                       {bound::kind::difference_at_most, 500});
  return {};
}

}  // namespace

result<void> run_network_rows(const row_context& context) {
  auto done = find_over_grpc(context);
  if (done) done = find_over_http(context);
  return done;
}

}  // namespace cenote::bench
