#include "commands/bench/manager/bare_mget.hpp"

#include <hiredis/hiredis.h>

namespace cenote::bench {

namespace {

constexpr int first_port = 20'000;
constexpr int last_port = 20'100;

}  // namespace

void bare_mget::redis_closer::operator()(redisContext* context) const noexcept {
  redisFree(context);
}

result<bare_mget> bare_mget::connect(const std::string& socket) {
  bare_mget made;
  made.context_.reset(redisConnectUnix(socket.c_str()));
  if (!made.is_connected()) return fail(error_code::system, "no connection to Redis");
  const auto port = made.open_port();
  if (!port) return std::unexpected(port.error());
  made.context_.reset(redisConnect("127.0.0.1", *port));
  if (!made.is_connected()) return fail(error_code::system, "no connection to Redis over TCP");
  made.question_.emplace_back("MGET");
  std::vector<std::string> words{"MSET"};
  for (std::size_t i = 0; i < values; ++i) {
    made.question_.push_back("bench:" + std::to_string(i));
    words.push_back(made.question_.back());
    words.emplace_back(value_bytes, 'x');
  }
  if (auto written = made.send(words, 0); !written) return std::unexpected(written.error());
  return made;
}

bool bare_mget::is_connected() const noexcept {
  return context_ != nullptr && context_->err == 0;
}

result<int> bare_mget::open_port() {
  result<void> opened = fail(error_code::system, "no port is free");
  for (int port = first_port; port <= last_port; ++port) {
    opened = send({"CONFIG", "SET", "port", std::to_string(port)}, 0);  // refused where another program listens
    if (opened) return port;
  }
  return std::unexpected(opened.error());
}

result<void> bare_mget::call() {
  return send(question_, values);
}

result<void> bare_mget::send(const std::vector<std::string>& words, std::size_t elements) {
  std::vector<const char*> data;
  std::vector<std::size_t> sizes;
  for (const std::string& each : words) {
    data.push_back(each.data());
    sizes.push_back(each.size());
  }
  const std::unique_ptr<redisReply, decltype(&freeReplyObject)> reply(
      static_cast<redisReply*>(
          redisCommandArgv(context_.get(), static_cast<int>(words.size()), data.data(), sizes.data())),
      &freeReplyObject);
  if (reply == nullptr) return fail(error_code::system, std::string("Redis: ") + context_->errstr);
  if (reply->type == REDIS_REPLY_ERROR || reply->elements != elements) {
    return fail(error_code::malformed, "Redis does not answer " + words.front() + " as it should");
  }
  return {};
}

}  // namespace cenote::bench
