#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "transport/local/socket.hpp"

namespace {

using namespace std::chrono_literals;
using namespace cenote;
using namespace cenote::local;

deadline soon() {
  return std::chrono::steady_clock::now() + 60s;
}

struct socket_pair {
  socket_pair() {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    left.reset(ends[0]);
    right.reset(ends[1]);
  }
  unique_fd left;
  unique_fd right;
};

struct scratch {
  scratch() {
    char name[] = "/tmp/cenote-socket-test-XXXXXX";
    dir = ::mkdtemp(name);
  }
  ~scratch() { std::filesystem::remove_all(dir); }
  [[nodiscard]] std::string path(const std::string& name = "cenote.sock") const { return dir + "/" + name; }
  std::string dir;
};

/// A socket with its file at `path`, which does not listen yet. `kind`: SOCK_SEQPACKET or SOCK_STREAM.
unique_fd bound_socket(const std::string& path, int kind) {
  unique_fd socket(::socket(AF_UNIX, kind | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  BOOST_REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto run = std::as_bytes(std::span(text));
  return {run.begin(), run.end()};
}

frame_header header_of(frame_type type, std::uint32_t request = 0) {
  frame_header header;
  header.type = type;
  header.request = request;
  return header;
}

// A frame whose header is whatever the test wants, size included.
void send_raw(int fd, const frame_header& header, std::size_t payload) {
  std::vector<std::byte> packet(sizeof header + payload);
  std::memcpy(packet.data(), &header, sizeof header);
  BOOST_REQUIRE(::send(fd, packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size()));
}

error_code refusal_of(const frame_header& header, std::size_t payload) {
  socket_pair pair;
  send_raw(pair.left.get(), header, payload);
  const auto got = receive_frame(pair.right.get(), soon());
  return got ? error_code::ok : got.error().code();
}

}  // namespace

BOOST_TEST_DONT_PRINT_LOG_VALUE(cenote::error_code)

BOOST_AUTO_TEST_SUITE(a_socket)

BOOST_AUTO_TEST_CASE(carries_frames_with_descriptors_that_close_on_exec) {
  socket_pair pair;
  const unique_fd first(::memfd_create("first", 0));
  const unique_fd second(::memfd_create("second", 0));
  BOOST_REQUIRE(::write(second.get(), "two", 3) == 3);
  const std::array fds{first.get(), second.get()};
  BOOST_REQUIRE(send_frame(pair.left.get(), header_of(frame_type::slabs_reply, 7), bytes_of("payload"), fds, soon()));
  const auto got = receive_frame(pair.right.get(), soon());
  BOOST_REQUIRE(got);
  BOOST_TEST((got->header.type == frame_type::slabs_reply));
  BOOST_TEST(got->header.request == 7U);
  BOOST_TEST((got->payload == bytes_of("payload")));
  BOOST_REQUIRE(got->fds.size() == 2U);
  char text[4] = {};
  BOOST_TEST(::pread(got->fds[1].get(), text, 3, 0) == 3);
  BOOST_TEST(std::string(text) == "two");
  for (const auto& fd : got->fds) BOOST_TEST((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

BOOST_AUTO_TEST_CASE(carries_the_largest_frame_and_the_most_descriptors) {
  socket_pair pair;
  const unique_fd file(::memfd_create("file", MFD_CLOEXEC));
  const std::vector<int> fds(max_frame_fds, file.get());
  const std::vector<std::byte> payload(max_payload, std::byte{42});
  BOOST_REQUIRE(send_frame(pair.left.get(), header_of(frame_type::admin), payload, fds, soon()));
  const auto got = receive_frame(pair.right.get(), soon());
  BOOST_REQUIRE(got);
  BOOST_TEST((got->payload == payload));
  BOOST_TEST(got->fds.size() == max_frame_fds);
}

BOOST_AUTO_TEST_CASE(refuses_to_send_what_no_frame_holds) {
  socket_pair pair;
  const std::vector<std::byte> payload(max_payload + 1);
  const auto sent = send_frame(pair.left.get(), header_of(frame_type::admin), payload, {}, soon());
  BOOST_REQUIRE(!sent);
  BOOST_TEST((sent.error().code() == error_code::limit_exceeded));
  const std::vector<int> fds(max_frame_fds + 1, 0);
  BOOST_TEST(!send_frame(pair.left.get(), header_of(frame_type::admin), {}, fds, soon()));
}

BOOST_AUTO_TEST_CASE(refuses_frames_that_are_malformed) {
  auto good = header_of(frame_type::done);
  BOOST_TEST((refusal_of(good, 0) == error_code::ok));
  auto wrong_magic = good;
  wrong_magic.magic = 1;
  BOOST_TEST((refusal_of(wrong_magic, 0) == error_code::malformed));
  auto too_short = good;
  too_short.size = 10;
  BOOST_TEST((refusal_of(too_short, 9) == error_code::malformed));
  BOOST_TEST((refusal_of(good, 1) == error_code::malformed));
  auto huge = good;
  huge.size = 0xffffffff;
  BOOST_TEST((refusal_of(huge, 0) == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(refuses_packets_that_are_too_small_or_too_large) {
  socket_pair pair;
  BOOST_REQUIRE(::send(pair.left.get(), "abc", 3, 0) == 3);
  const std::vector<char> large(max_frame + 1);
  BOOST_REQUIRE(::send(pair.left.get(), large.data(), large.size(), 0) > 0);
  BOOST_REQUIRE(send_frame(pair.left.get(), header_of(frame_type::done), {}, {}, soon()));
  for (int i = 0; i < 2; ++i) {
    const auto got = receive_frame(pair.right.get(), soon());
    BOOST_REQUIRE(!got);
    BOOST_TEST((got.error().code() == error_code::malformed));
  }
  BOOST_TEST(receive_frame(pair.right.get(), soon()).has_value());
}

BOOST_AUTO_TEST_CASE(refuses_another_major_and_a_later_minor_version_and_takes_an_earlier_one) {
  auto header = header_of(frame_type::attach);
  header.major = protocol_major + 1;
  BOOST_TEST((refusal_of(header, 0) == error_code::protocol_mismatch));
  header = header_of(frame_type::attach);
  header.minor = protocol_minor + 1;
  BOOST_TEST((refusal_of(header, 0) == error_code::protocol_mismatch));
  header.minor = protocol_minor - 1;
  BOOST_TEST((refusal_of(header, 0) == error_code::ok));
  BOOST_TEST(reply_to(header, frame_type::done).minor == protocol_minor - 1);
}

BOOST_AUTO_TEST_CASE(closes_descriptors_that_come_with_a_bad_frame) {
  socket_pair pair;
  std::array<int, 2> pipe{};
  BOOST_REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
  unique_fd reader(pipe[0]);
  unique_fd writer(pipe[1]);
  const std::array fds{writer.get()};
  auto header = header_of(frame_type::done);
  header.magic = 0;
  BOOST_REQUIRE(*try_send_frame(pair.left.get(), header, {}, fds));
  BOOST_TEST(!receive_frame(pair.right.get(), soon()));
  writer.reset();
  // The end of the pipe: nobody holds the other side any more.
  char byte = 0;
  BOOST_TEST(::read(reader.get(), &byte, 1) == 0);
}

BOOST_AUTO_TEST_CASE(says_closed_when_the_other_side_is_gone) {
  socket_pair pair;
  pair.left.reset();
  const auto got = receive_frame(pair.right.get(), soon());
  BOOST_REQUIRE(!got);
  BOOST_TEST((got.error().code() == error_code::closed));
  const auto sent = send_frame(pair.right.get(), header_of(frame_type::done), {}, {}, soon());
  BOOST_REQUIRE(!sent);
  BOOST_TEST((sent.error().code() == error_code::closed));
}

BOOST_AUTO_TEST_CASE(gives_up_at_the_deadline) {
  socket_pair pair;
  const auto before = std::chrono::steady_clock::now();
  const auto got = receive_frame(pair.right.get(), before + 30ms);
  BOOST_REQUIRE(!got);
  BOOST_TEST((got.error().code() == error_code::deadline_exceeded));
  BOOST_TEST((std::chrono::steady_clock::now() - before >= 30ms));
  const std::vector<std::byte> payload(max_payload);
  result<void> sent;
  while (sent)
    sent =
        send_frame(pair.left.get(), header_of(frame_type::done), payload, {}, std::chrono::steady_clock::now() + 30ms);
  BOOST_TEST((sent.error().code() == error_code::deadline_exceeded));
  BOOST_TEST(!*try_send_frame(pair.left.get(), header_of(frame_type::done), payload, {}));
}

BOOST_AUTO_TEST_CASE(does_not_wait_when_nothing_is_there) {
  socket_pair pair;
  const auto got = try_receive_frame(pair.right.get());
  BOOST_REQUIRE(got);
  BOOST_TEST(!got->has_value());
}

BOOST_AUTO_TEST_CASE(carries_texts_longer_than_a_frame) {
  socket_pair pair;
  for (const std::size_t size : {std::size_t{0}, max_payload, max_payload + 1, std::size_t{1'000'000}}) {
    std::string text(size, 'x');
    if (size > 0) text.back() = 'y';
    bool sent = false;
    std::jthread sender(
        [&] { sent = send_text(pair.left.get(), header_of(frame_type::admin_reply), text, soon()).has_value(); });
    auto first = receive_frame(pair.right.get(), soon());
    BOOST_REQUIRE(first);
    const auto got = receive_text(pair.right.get(), std::move(*first), soon());
    BOOST_REQUIRE(got);
    BOOST_TEST((*got == text));
    sender.join();
    BOOST_TEST(sent);
  }
}

BOOST_AUTO_TEST_CASE(carries_failures_with_code_and_message) {
  const auto back = decode_failure(encode_failure({error_code::no_space, "all pinned"}));
  BOOST_TEST((back.code() == error_code::no_space));
  BOOST_TEST(back.message() == "all pinned");
  BOOST_TEST((decode_failure(bytes_of("x")).code() == error_code::malformed));
  BOOST_TEST((decode_failure(encode_failure({error_code::ok, "?"})).code() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(listens_and_knows_its_peer) {
  scratch place;
  const auto listener = listen_at(place.path("made/on/the/way.sock"));
  BOOST_REQUIRE(listener);
  struct stat info {};
  BOOST_REQUIRE(::stat(place.path("made/on/the/way.sock").c_str(), &info) == 0);
  BOOST_TEST((info.st_mode & 0777) == 0666U);
  BOOST_TEST(!accept_one(listener->get())->has_value());
  const auto client = connect_to(place.path("made/on/the/way.sock"), soon());
  BOOST_REQUIRE(client);
  const auto server = accept_one(listener->get());
  BOOST_REQUIRE(server);
  BOOST_REQUIRE(server->has_value());
  const auto peer = credentials_of((*server)->get());
  BOOST_REQUIRE(peer);
  BOOST_TEST(peer->pid == ::getpid());
  BOOST_TEST(peer->uid == ::getuid());
  BOOST_TEST(peer->gid == ::getgid());
}

BOOST_AUTO_TEST_CASE(sees_the_death_of_its_peer_through_a_pidfd) {
  scratch place;
  const auto listener = listen_at(place.path());
  BOOST_REQUIRE(listener);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto fd = connect_to(place.path(), soon());
    ::pause();
    ::_exit(0);
  }
  BOOST_REQUIRE(detail::wait_for(listener->get(), POLLIN, soon()));
  const auto server = accept_one(listener->get());
  BOOST_REQUIRE(server->has_value());
  const auto pidfd = pidfd_of((*server)->get());
  BOOST_REQUIRE(pidfd);
  BOOST_TEST(!detail::wait_for(pidfd->get(), POLLIN, std::chrono::steady_clock::now() + 20ms));
  ::kill(child, SIGKILL);
  BOOST_TEST(detail::wait_for(pidfd->get(), POLLIN, soon()).has_value());
  ::waitpid(child, nullptr, 0);
}

/// A child that waits; ended with the test.
struct waiting_process {
  waiting_process() : pid(::fork()), pidfd(-1) {
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
    pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  waiting_process(const waiting_process&) = delete;
  waiting_process& operator=(const waiting_process&) = delete;
  ~waiting_process() { end(); }
  void end() {
    if (pid == 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  pid_t pid;
  unique_fd pidfd;
};

BOOST_AUTO_TEST_CASE(a_process_is_the_same_through_each_of_its_pidfds_and_no_other_without_numbers) {
  const waiting_process one;
  const waiting_process two;
  const unique_fd again(static_cast<int>(::syscall(SYS_pidfd_open, one.pid, 0)));
  const peer_credentials unseen{.pid = 0, .uid = 7, .gid = 8};
  const auto first = identify(one.pidfd.get(), unseen);
  if (first.serial == 0) return;  // a kernel before 6.9
  BOOST_TEST(may_be_one_process(first, identify(again.get(), unseen)));
  BOOST_TEST(!may_be_one_process(first, identify(two.pidfd.get(), unseen)));
  BOOST_TEST(!may_be_one_process(identify(two.pidfd.get(), unseen), first));
}

BOOST_AUTO_TEST_CASE(a_process_that_ended_is_seen_as_such) {
  waiting_process one;
  BOOST_TEST(!identify(one.pidfd.get(), {}).has_ended);
  one.end();
  BOOST_TEST(identify(one.pidfd.get(), {}).has_ended);
}

BOOST_AUTO_TEST_CASE(serials_decide_whatever_the_numbers_are) {
  const process_identity one{.serial = 5, .credentials = {.pid = 9, .uid = 1, .gid = 1}};
  BOOST_TEST(may_be_one_process(one, {.serial = 5, .credentials = {.pid = 0, .uid = 2, .gid = 2}}));
  BOOST_TEST(!may_be_one_process(one, {.serial = 6, .credentials = one.credentials}));
  BOOST_TEST(!may_be_one_process(one, {.serial = 0, .credentials = one.credentials}));
  BOOST_TEST(!may_be_one_process({.serial = 0, .credentials = one.credentials}, one));
}

BOOST_AUTO_TEST_CASE(without_serials_the_number_of_a_living_process_decides) {
  const process_identity one{.credentials = {.pid = 9, .uid = 1, .gid = 1}};
  BOOST_TEST(may_be_one_process(one, one));
  BOOST_TEST(!may_be_one_process(one, {.credentials = {.pid = 8, .uid = 1, .gid = 1}}));
  BOOST_TEST(!may_be_one_process({.credentials = one.credentials, .has_ended = true}, one));
}

BOOST_AUTO_TEST_CASE(without_serials_and_numbers_only_processes_of_one_user_may_be_the_same) {
  const process_identity one{.credentials = {.pid = 0, .uid = 1, .gid = 1}};
  BOOST_TEST(may_be_one_process(one, one));
  BOOST_TEST(!may_be_one_process(one, {.credentials = {.pid = 0, .uid = 2, .gid = 1}}));
  BOOST_TEST(!may_be_one_process(one, {.credentials = {.pid = 0, .uid = 1, .gid = 2}}));
  BOOST_TEST(!may_be_one_process(one, {.credentials = {.pid = 9, .uid = 1, .gid = 1}}));
  BOOST_TEST(!may_be_one_process({.credentials = {.pid = 9, .uid = 1, .gid = 1}}, one));
  BOOST_TEST(!may_be_one_process({.credentials = one.credentials, .has_ended = true}, one));
}

BOOST_AUTO_TEST_CASE(replaces_a_socket_that_a_dead_node_left) {
  scratch place;
  BOOST_REQUIRE(listen_at(place.path()));
  BOOST_REQUIRE(std::filesystem::exists(place.path()));
  const auto again = listen_at(place.path());
  BOOST_REQUIRE(again);
  BOOST_TEST(connect_to(place.path(), soon()).has_value());
}

BOOST_AUTO_TEST_CASE(refuses_a_path_where_a_node_answers) {
  scratch place;
  const auto first = listen_at(place.path());
  BOOST_REQUIRE(first);
  const auto second = listen_at(place.path());
  BOOST_REQUIRE(!second);
  BOOST_TEST((second.error().code() == error_code::limit_exceeded));
  BOOST_TEST(second.error().message() == "a node already runs at " + place.path());
  BOOST_TEST(connect_to(place.path(), soon()).has_value());
}

BOOST_AUTO_TEST_CASE(never_deletes_a_file_that_is_no_socket) {
  scratch place;
  std::ofstream(place.path()) << "precious";
  const auto listener = listen_at(place.path());
  BOOST_REQUIRE(!listener);
  BOOST_TEST((listener.error().code() == error_code::invalid_argument));
  BOOST_TEST(std::filesystem::file_size(place.path()) == 8U);
}

BOOST_AUTO_TEST_CASE(refuses_a_path_that_is_too_long) {
  BOOST_TEST((listen_at("/tmp/" + std::string(120, 'x')).error().code() == error_code::invalid_argument));
  BOOST_TEST((listen_at("").error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(says_how_to_start_a_node_when_there_is_none) {
  scratch place;
  const auto missing = connect_to(place.path(), soon());
  BOOST_REQUIRE(!missing);
  BOOST_TEST((missing.error().code() == error_code::not_running));
  BOOST_TEST(missing.error().message() == "no node at " + place.path() + "; start one with `cenote node`");
  BOOST_REQUIRE(listen_at(place.path()));
  BOOST_TEST((connect_to(place.path(), soon()).error().code() == error_code::not_running));
}

BOOST_AUTO_TEST_CASE(waits_for_a_node_whose_socket_file_is_there_and_does_not_listen_yet) {
  scratch place;
  const unique_fd starting = bound_socket(place.path(), SOCK_SEQPACKET);
  auto client = std::async(std::launch::async, [&] { return connect_to(place.path(), soon()).has_value(); });
  BOOST_TEST((client.wait_for(20ms) == std::future_status::timeout));
  BOOST_REQUIRE(::listen(starting.get(), 1) == 0);
  BOOST_TEST(client.get());
}

BOOST_AUTO_TEST_CASE(says_when_the_path_is_no_socket) {
  scratch place;
  std::ofstream(place.path()) << "text";
  for (const std::string& path : {place.path(), std::filesystem::path(place.path()).parent_path().string()}) {
    const auto fd = connect_to(path, soon());
    BOOST_REQUIRE(!fd);
    BOOST_TEST((fd.error().code() == error_code::not_running));
    BOOST_TEST(fd.error().message().starts_with(path + " is no socket"));
  }
}

BOOST_AUTO_TEST_CASE(says_when_another_program_listens_there) {
  scratch place;
  const unique_fd other = bound_socket(place.path(), SOCK_STREAM);
  BOOST_REQUIRE(::listen(other.get(), 1) == 0);
  BOOST_TEST((connect_to(place.path(), soon()).error().code() == error_code::not_running));
  BOOST_TEST((listen_at(place.path()).error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_process_out_of_descriptors_is_told_which_limit_to_raise) {
  socket_pair ends;
  const std::array<int, 2> fds{ends.left.get(), ends.left.get()};
  BOOST_REQUIRE(send_frame(ends.left.get(), header_of(frame_type::slabs_reply), {}, fds, soon()).has_value());
  rlimit before{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = 3;
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto got = try_receive_frame(ends.right.get());
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  BOOST_REQUIRE(!got);
  BOOST_TEST((got.error().code() == error_code::limit_exceeded));
  BOOST_TEST(got.error().message().find("ulimit -n") != std::string::npos, got.error().message());
}

BOOST_AUTO_TEST_CASE(a_place_to_listen_at_is_checked_without_making_anything) {
  const scratch place;
  BOOST_TEST(check_place(place.path("made/on/the/way.sock")).has_value());
  BOOST_TEST(std::filesystem::is_empty(place.dir));
  std::ofstream(place.path("file")) << "x";
  BOOST_TEST((check_place(place.path("file")).error().code() == error_code::invalid_argument));
  BOOST_TEST(!check_place(place.path("file/a.sock")).has_value());
  { const auto dead = bound_socket(place.path("dead.sock"), SOCK_SEQPACKET); }
  BOOST_TEST(check_place(place.path("dead.sock")).has_value());
  BOOST_TEST(std::filesystem::exists(place.path("dead.sock")), "only a listener takes its place");
  const auto listener = listen_at(place.path("live.sock"));
  BOOST_TEST((check_place(place.path("live.sock")).error().code() == error_code::limit_exceeded));
  const auto other = bound_socket(place.path("other.sock"), SOCK_STREAM);
  BOOST_REQUIRE(::listen(other.get(), 1) == 0);
  BOOST_TEST((check_place(place.path("other.sock")).error().code() == error_code::invalid_argument));
  BOOST_TEST((check_place("/tmp/" + std::string(120, 'x')).error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_SUITE_END()
