// Starts, stops, kills and asks a real Redis server.
#include "tests/support/redis_server.hpp"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "core/unique_fd.hpp"

namespace cenote::test {

namespace {

struct free_context {
  void operator()(redisContext* context) const noexcept { redisFree(context); }
};
struct free_reply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using reply_pointer = std::unique_ptr<redisReply, free_reply>;

std::string text_of(const redisReply& reply) {
  std::string text;
  switch (reply.type) {
    case REDIS_REPLY_NIL: return "(nil)";
    case REDIS_REPLY_INTEGER: return std::to_string(reply.integer);
    case REDIS_REPLY_ARRAY:
      for (std::size_t i = 0; i < reply.elements; ++i) text += (i == 0 ? "" : "\n") + text_of(*reply.element[i]);
      return text;
    default: return {reply.str, reply.len};
  }
}

reply_pointer ask(redisContext* context, const std::vector<std::string>& command) {
  std::vector<const char*> words;
  std::vector<std::size_t> sizes;
  for (const std::string& each : command) {
    words.push_back(each.data());
    sizes.push_back(each.size());
  }
  return reply_pointer(
      static_cast<redisReply*>(redisCommandArgv(context, static_cast<int>(words.size()), words.data(), sizes.data())));
}

/// Debian's redis-tools has the server as redis-check-rdb, which is one when it is called so.
[[noreturn]] void become_server(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& each : arguments) pointers.push_back(const_cast<char*>(each.c_str()));
  pointers.push_back(nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::execvp("redis-server", pointers.data());
  ::execvp("redis-check-rdb", pointers.data());
  ::_exit(127);
}

}  // namespace

scratch_folder::scratch_folder() : path_((std::filesystem::temp_directory_path() / "cenote-test-XXXXXX").native()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
}

scratch_folder::~scratch_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string free_port() {
  const unique_fd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  BOOST_REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  BOOST_REQUIRE(::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return std::to_string(ntohs(address.sin_port));
}

redis_server::redis_server(std::vector<std::string> settings) : settings_(std::move(settings)) {
  start();
}

redis_server::~redis_server() {
  kill();
}

void redis_server::start() {
  BOOST_REQUIRE(process_ < 0);
  std::vector<std::string> arguments{"redis-server", "--port", "0", "--unixsocket", socket(), "--dir",
                                     folder_.path(), "--save", "",  "--appendonly", "no",     "--logfile",
                                     folder_ / "log"};
  arguments.insert(arguments.end(), settings_.begin(), settings_.end());
  process_ = ::fork();
  BOOST_REQUIRE(process_ >= 0);
  if (process_ == 0) become_server(arguments);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    const std::unique_ptr<redisContext, free_context> context(redisConnectUnix(socket().c_str()));
    if (context && context->err == 0 && ask(context.get(), {"PING"})) return;
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) == process_) {
      process_ = -1;
      BOOST_FAIL("no Redis server could be started (the package redis-tools has one): status " << status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  BOOST_FAIL("the Redis server does not answer");
}

void redis_server::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
}

void redis_server::freeze() {
  BOOST_REQUIRE(::kill(process_, SIGSTOP) == 0);
  int status = 0;
  BOOST_REQUIRE(::waitpid(process_, &status, WUNTRACED) == process_);  // it has stopped by then
}

void redis_server::thaw() {
  BOOST_REQUIRE(::kill(process_, SIGCONT) == 0);
}

std::string redis_server::say(const std::vector<std::string>& command, const std::string& password) const {
  const std::unique_ptr<redisContext, free_context> context(redisConnectUnix(socket().c_str()));
  BOOST_REQUIRE(context && context->err == 0);
  if (!password.empty()) BOOST_REQUIRE(ask(context.get(), {"AUTH", password}));
  const auto reply = ask(context.get(), command);
  BOOST_REQUIRE_MESSAGE(reply, "the Redis server does not answer");
  return text_of(*reply);
}

}  // namespace cenote::test
