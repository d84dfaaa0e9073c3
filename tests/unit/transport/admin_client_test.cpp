#include <poll.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "transport/local/admin_client.hpp"
#include "transport/local/socket.hpp"

namespace {

using namespace std::chrono_literals;
using namespace cenote;
using namespace cenote::local;

// Answers one connection as told.
class one_answer {
 public:
  enum class how { text, failure, hang_up, nothing };

  explicit one_answer(how manner) {
    char name[] = "/tmp/cenote-admin-test-XXXXXX";
    dir_ = ::mkdtemp(name);
    auto listener = listen_at(path());
    BOOST_REQUIRE(listener);
    listener_ = std::move(*listener);
    thread_ = std::jthread([this, manner] { serve(manner); });
  }
  ~one_answer() {
    thread_.join();
    std::filesystem::remove_all(dir_);
  }
  one_answer(const one_answer&) = delete;
  one_answer& operator=(const one_answer&) = delete;

  [[nodiscard]] std::string path() const { return dir_ + "/cenote.sock"; }
  [[nodiscard]] int minor() const { return minor_; }  ///< of the protocol, of the question; -1 before it

 private:
  void serve(how manner) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    if (!detail::wait_for(listener_.get(), POLLIN, until)) return;
    auto client = accept_one(listener_.get());
    if (!client || !*client) return;
    const int fd = (*client)->get();
    const auto asked = receive_frame(fd, until);
    if (!asked) return;
    minor_ = asked->header.minor;
    if (manner == how::text)
      (void)send_text(fd, reply_to(asked->header, frame_type::admin_reply), std::string(200'000, 'a'), until);
    if (manner == how::failure) {
      (void)send_frame(fd, reply_to(asked->header, frame_type::failure),
                       encode_failure({error_code::permission_denied, "not you"}), {}, until);
    }
    if (manner == how::nothing) (void)receive_frame(fd, until);  // until the client has hung up
  }

  std::atomic<int> minor_ = -1;
  std::string dir_;
  unique_fd listener_;
  std::jthread thread_;
};

error_code code_of(one_answer::how manner) {
  one_answer node(manner);
  const auto reply = ask_node(node.path(), "{}", manner == one_answer::how::nothing ? 100ms : 60'000ms);
  return reply ? error_code::ok : reply.error().code();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(an_operator_command)

BOOST_AUTO_TEST_CASE(brings_an_answer_longer_than_a_frame) {
  one_answer node(one_answer::how::text);
  const auto reply = ask_node(node.path(), R"({"command":"status"})", 60s);
  BOOST_REQUIRE(reply);
  BOOST_TEST(reply->size() == 200'000U);
}

BOOST_AUTO_TEST_CASE(reaches_nodes_of_every_earlier_minor_version_of_the_protocol) {
  one_answer node(one_answer::how::text);
  BOOST_REQUIRE(ask_node(node.path(), R"({"command":"status"})", 60s));
  BOOST_TEST(node.minor() == 0);
}

BOOST_AUTO_TEST_CASE(brings_the_nodes_refusal_a_lost_connection_and_silence_as_errors) {
  BOOST_TEST((code_of(one_answer::how::failure) == error_code::permission_denied));
  BOOST_TEST((code_of(one_answer::how::hang_up) == error_code::node_restarting));
  BOOST_TEST((code_of(one_answer::how::nothing) == error_code::deadline_exceeded));
}

BOOST_AUTO_TEST_SUITE_END()
