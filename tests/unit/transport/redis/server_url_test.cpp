// Addresses of Redis servers, and the file with a password.
#include "transport/redis/server_url.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <random>

#include "tests/support/redis_server.hpp"

namespace cenote::redis {

BOOST_AUTO_TEST_SUITE(redis_urls)

BOOST_AUTO_TEST_CASE(an_address_says_servers_user_database_and_prefix) {
  const auto url = parse_server_url("redis://kv@10.0.0.9:6380,cache,[::1]:7/3?prefix=team:a");
  BOOST_REQUIRE(url.has_value());
  BOOST_TEST(url->servers.size() == 3U);
  BOOST_TEST(url->servers[0].text() == "10.0.0.9:6380");
  BOOST_TEST(url->servers[1].text() == "cache:6379");
  BOOST_TEST(url->servers[2].place.host == "::1");
  BOOST_TEST(url->user == "kv");
  BOOST_TEST(url->database == 3U);
  BOOST_TEST(url->prefix == "team:a");
  BOOST_TEST(url->name() == "redis://10.0.0.9:6380,cache:6379,[::1]:7/3?prefix=team:a");
  BOOST_TEST(parse_server_url("valkey://h")->name() == "redis://h:6379");
}

BOOST_AUTO_TEST_CASE(a_socket_is_an_address_too) {
  const auto url = parse_server_url("unix:///run/redis.sock?db=2&prefix=x&user=u");
  BOOST_REQUIRE(url.has_value());
  BOOST_TEST(url->servers.front().path == "/run/redis.sock");
  BOOST_TEST(url->database == 2U);
  BOOST_TEST(url->prefix == "x");
  BOOST_TEST(url->user == "u");
  BOOST_TEST(url->name() == "unix:///run/redis.sock?db=2&prefix=x");
}

BOOST_AUTO_TEST_CASE(an_address_with_tls_says_files_and_the_name_of_the_certificate) {
  const auto url =
      parse_server_url("rediss://kv@h,h2:7/1?prefix=p&ca=/etc/ca.pem&cert=/c=1.pem&key=/k.pem&name=redis.in");
  BOOST_REQUIRE(url.has_value());
  BOOST_REQUIRE(url->tls.has_value());
  BOOST_TEST(url->tls->files.authority == "/etc/ca.pem");
  BOOST_TEST(url->tls->files.certificate == "/c=1.pem");
  BOOST_TEST(url->tls->files.key == "/k.pem");
  BOOST_TEST(url->tls->name == "redis.in");
  BOOST_TEST(url->user == "kv");
  BOOST_TEST(url->name() == "rediss://h:6379,h2:7/1?prefix=p");
  BOOST_TEST(parse_server_url("valkeys://h")->name() == "rediss://h:6379");
  BOOST_TEST((parse_server_url("rediss://h")->tls == tls::client_settings{}));
  BOOST_TEST(!parse_server_url("redis://h")->tls.has_value());
}

BOOST_AUTO_TEST_CASE(what_is_no_address_is_refused) {
  for (const char* text : {"",
                           "redis://",
                           "redis://:6379",
                           "redis://h:0",
                           "redis://h:99999",
                           "redis://h/x",
                           "redis://h/65536",
                           "redis://h,",
                           "redis://h,h",
                           "redis://h?prefix=",
                           "redis://h?prefix=a b",
                           "redis://h?other=1",
                           "redis://h?db",
                           "http://h",
                           "rediss://",
                           "redis://h?ca=/c",
                           "unix:///s?name=h",
                           "rediss://h?ca=c",
                           "rediss://h?cert=/c",
                           "rediss://h?key=/k",
                           "rediss://h?name=",
                           "rediss://h?name=a/b",
                           "rediss://h?ca",
                           "redisss://h",
                           "unix://relative",
                           "unix:///",
                           "redis://::1:7",
                           "redis://h?prefix=x&&y"}) {
    BOOST_TEST(!parse_server_url(text).has_value(), text);
  }
  BOOST_TEST(!parse_server_url("unix:///" + std::string(200, 'x')).has_value());
}

BOOST_AUTO_TEST_CASE(an_address_of_sentinels_is_refused_with_the_way_to_do_without) {
  for (const char* text : {"redis-sentinel://h:26379/main", "redis+sentinel://h", "rediss-sentinel://h,h2/main"}) {
    const auto url = parse_server_url(text);
    BOOST_REQUIRE(!url.has_value());
    BOOST_TEST(url.error().message().starts_with("Sentinel is not asked: name a host that follows the primary"), text);
  }
  BOOST_TEST(parse_server_url("redis://sentinel").has_value());
}

BOOST_AUTO_TEST_CASE(a_password_in_an_address_is_refused_and_not_repeated) {
  const auto url = parse_server_url("redis://me:hunter2@h:6379");
  BOOST_REQUIRE(!url.has_value());
  BOOST_TEST(url.error().message().find("hunter2") == std::string::npos);
  BOOST_TEST(url.error().message().find("file") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(random_text_is_taken_or_refused_and_its_name_means_the_same) {
  constexpr std::string_view letters = "redis:/unx?&=@,.[]0123456789abpf-\x01\xff";
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text = round % 4 == 0 ? "" : round % 4 == 1 ? "redis://" : round % 4 == 2 ? "rediss://" : "unix:///";
    for (auto i = random() % 24; i > 0; --i) text += letters[random() % letters.size()];
    const auto url = parse_server_url(text);
    if (!url) continue;
    const auto again = parse_server_url(url->name());
    BOOST_REQUIRE_MESSAGE(again.has_value(), text << " became " << url->name());
    BOOST_REQUIRE(again->name() == url->name());
  }
}

BOOST_AUTO_TEST_CASE(a_password_is_read_from_a_file_of_ones_own) {
  const test::scratch_folder folder;
  const auto file = folder / "secret";
  std::ofstream(file) << "kv:pa:ss\n";
  BOOST_REQUIRE(::chmod(file.c_str(), 0600) == 0);
  auto found = read_credentials(file, "");
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->user == "kv");
  BOOST_TEST(found->password == "pa:ss");
  found = read_credentials(file, "me");
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->user == "me");
  BOOST_TEST(found->password == "kv:pa:ss");
}

BOOST_AUTO_TEST_CASE(a_password_that_others_can_read_is_refused) {
  const test::scratch_folder folder;
  const auto file = folder / "secret";
  std::ofstream(file) << "hunter2\n";
  BOOST_REQUIRE(::chmod(file.c_str(), 0644) == 0);
  const auto found = read_credentials(file, "");
  BOOST_REQUIRE(!found.has_value());
  BOOST_TEST((found.error().code() == error_code::permission_denied));
  BOOST_TEST(found.error().message().find("chmod 600") != std::string::npos);
  BOOST_TEST(found.error().message().find("hunter2") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_file_that_is_missing_empty_or_of_two_lines_is_refused) {
  const test::scratch_folder folder;
  BOOST_TEST(!read_credentials(folder / "none", "").has_value());
  BOOST_TEST(!read_credentials(folder.path(), "").has_value());
  const auto file = folder / "secret";
  for (const std::string& text : {std::string("\n"), std::string("a\nb\n"), std::string(5000, 'x')}) {
    std::ofstream(file, std::ios::trunc) << text;
    BOOST_REQUIRE(::chmod(file.c_str(), 0600) == 0);
    BOOST_TEST(!read_credentials(file, "").has_value());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
