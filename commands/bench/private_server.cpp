#include "commands/bench/private_server.hpp"

#include <hiredis/hiredis.h>

#include <chrono>
#include <memory>
#include <thread>

namespace cenote::bench {

namespace {

constexpr double start_seconds = 20;

}  // namespace

result<private_server> private_server::start(const scratch_directory& directory) {
  auto program = find_program("redis-server");
  // Debian's redis-tools has the server under this name; it is one when it is called so.
  if (!program) program = find_program("redis-check-rdb");
  if (!program) {
    return fail(error_code::unsupported,
                "this bench starts a Redis server, which is not installed (package redis-tools); or name one by --url");
  }
  child_process::setup how;
  how.program = *program;
  how.command = {"redis-server",
                 "--port",
                 "0",
                 "--unixsocket",
                 directory / "redis.sock",
                 "--dir",
                 directory / "",
                 "--save",
                 "",
                 "--appendonly",
                 "no",
                 "--logfile",
                 directory / "log"};
  how.die_with_parent = true;
  how.discard_output = true;
  how.own_group = true;
  auto process = child_process::start(how);
  if (!process) return std::unexpected(process.error());
  private_server made(std::move(*process), directory / "redis.sock");
  if (auto ok = made.wait_until_it_answers(); !ok) return std::unexpected(ok.error());
  return made;
}

result<void> private_server::wait_until_it_answers() {
  const stopwatch time;
  while (time.seconds() < start_seconds) {
    const std::unique_ptr<redisContext, decltype(&redisFree)> tried(redisConnectUnix(socket_.c_str()), &redisFree);
    if (tried && tried->err == 0) return {};
    if (const auto end = process_.ended()) {
      return fail(error_code::system, "the Redis server ended with " + end->describe());
    }
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fail(error_code::deadline_exceeded, "the Redis server does not answer");
}

}  // namespace cenote::bench
