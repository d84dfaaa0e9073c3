// Addresses of blocks, taken apart again as clients do it.
#include "transport/manager/file_uri.hpp"

#include <boost/test/unit_test.hpp>
#include <charconv>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace cenote::manager {

namespace {

struct uri_parts {
  std::string scheme;
  std::string authority;
  std::string path;
  std::map<std::string, std::string, std::less<>> query;
};

uri_parts split(const std::string& uri) {
  uri_parts parts;
  const std::size_t host = uri.find("://") + 3;
  const std::size_t path = uri.find('/', host);
  const std::size_t query = uri.find('?', path);
  parts.scheme = uri.substr(0, host - 3);
  parts.authority = uri.substr(host, path - host);
  parts.path = uri.substr(path, query - path);
  for (std::size_t begin = query + 1; begin < uri.size();) {
    const std::size_t end = std::min(uri.find('&', begin), uri.size());
    const std::size_t equals = uri.find('=', begin);
    parts.query[uri.substr(begin, equals - begin)] = uri.substr(equals + 1, end - equals - 1);
    begin = end + 1;
  }
  return parts;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    int byte = 0;
    std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::string uri_of(const uri_writer& writer, std::uint64_t extent, std::uint32_t position) {
  std::string text;
  writer.append({.extent = extent, .position = position}, text);
  BOOST_TEST(text.size() <= writer.longest());
  return text;
}

std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> all;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    all.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return all;
}

constexpr uri_place plain_place{
    .storage = "n1", .root = "/mnt/kv", .blocks_per_file = 8, .instance = "i", .spec = "tp0", .spec_bytes = 512};

const std::vector<std::string>& hostile_names() {
  static const std::vector<std::string> names{"..",
                                              ".",
                                              "/",
                                              "../..",
                                              "a/../../b",
                                              "/etc/passwd",
                                              std::string("a\0b", 3),
                                              std::string(1, '\0'),
                                              "",
                                              " ",
                                              "%2e%2e",
                                              "a?b#c&d=e",
                                              "a\\b",
                                              "\xc3\xa4",
                                              "\xff\xfe",
                                              "a\nb",
                                              std::string(255, '.'),
                                              std::string(255, '/'),
                                              std::string(255, 'a'),
                                              std::string(254, 'a') + "b",
                                              "~",
                                              "tp0.1",
                                              "con:1"};
  return names;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(file_uris)

BOOST_AUTO_TEST_CASE(an_address_has_storage_path_part_and_size) {
  const uri_writer writer(plain_place);
  BOOST_TEST(uri_of(writer, 0x100000002, 0) == "file://n1/mnt/kv/i/0000000100000002/tp0?blkid=0&size=512");
  BOOST_TEST(uri_of(writer, 0x100000002, 7) == "file://n1/mnt/kv/i/0000000100000002/tp0?blkid=7&size=512");
  BOOST_TEST(uri_of(writer, 0x100000002, 8) == "file://n1/mnt/kv/i/0000000100000002/tp0.1?blkid=0&size=512");
  BOOST_TEST(uri_of(writer, ~0ULL, 65535) == "file://n1/mnt/kv/i/ffffffffffffffff/tp0.8191?blkid=7&size=512");
}

BOOST_AUTO_TEST_CASE(a_file_has_one_block_where_nothing_else_is_set) {
  for (const std::uint32_t count : {0U, 1U}) {
    uri_place place = plain_place;
    place.blocks_per_file = count;
    const uri_writer writer(place);
    BOOST_TEST(uri_of(writer, 1, 0) == "file://n1/mnt/kv/i/0000000000000001/tp0?blkid=0&size=512");
    BOOST_TEST(uri_of(writer, 1, 2) == "file://n1/mnt/kv/i/0000000000000001/tp0.2?blkid=0&size=512");
  }
}

BOOST_AUTO_TEST_CASE(threefs_and_redis_have_their_own_schemes) {
  uri_place place = plain_place;
  place.type = storage_type::threefs;
  BOOST_TEST(uri_of(uri_writer(place), 5, 9) == "3fs://n1/mnt/kv/i/0000000000000005/tp0.1?blkid=1&size=512");
  place.type = storage_type::redis;
  place.root = {};
  const uri_writer redis(place);
  BOOST_TEST(uri_of(redis, 5, 9) == "redis://n1/i/0000000000000005/tp0/9?size=512");
  BOOST_TEST(redis.key(5, 9) == "i/0000000000000005/tp0/9");
  BOOST_TEST(uri_writer::serves(storage_type::redis));
  BOOST_TEST(uri_writer::serves(storage_type::mooncake));
  BOOST_TEST(!uri_writer::serves(storage_type::cenote));
}

BOOST_AUTO_TEST_CASE(an_address_of_a_plug_in_has_the_key_and_the_extent) {
  uri_place place = plain_place;
  place.type = storage_type::mooncake;
  place.instance = "a/b";
  const auto uri_of_key = [&](std::uint64_t low, std::uint64_t high) {
    const uri_writer writer(place);
    std::string text;
    writer.append({.extent = 0x100000002, .position = 7, .key_low = low, .key_high = high}, text);
    BOOST_TEST(text.size() <= writer.longest());
    return text;
  };
  BOOST_TEST(uri_of_key(0xab, 0) == "mooncake://n1/a%2Fb/tp0/00000000000000ab-0000000100000002?size=512");
  BOOST_TEST(uri_of_key(~0ULL, 1) ==
             "mooncake://n1/a%2Fb/tp0/0000000000000001ffffffffffffffff-0000000100000002?size=512");
  place.type = storage_type::tair_mempool_ssd;
  BOOST_TEST(uri_of_key(1, 0).starts_with("tairmempool-ssd://n1/a%2Fb/tp0/"));
}

BOOST_AUTO_TEST_CASE(the_part_of_a_file_is_that_of_the_address) {
  for (const std::uint32_t count : {1U, 2U, 8U, 32768U}) {
    uri_place place = plain_place;
    place.blocks_per_file = count;
    place.instance = "a b";
    place.spec_bytes = (1ULL << 48U) - 1;
    const uri_writer writer(place);
    for (const std::uint32_t position : {0U, 1U, 7U, 8U, 32767U, 65535U}) {
      const uri_parts parts = split(uri_of(writer, 77, position));
      const file_range range = writer.part(77, position);
      BOOST_TEST(parts.path == "/mnt/kv/" + range.path);
      BOOST_TEST(range.offset == std::stoull(parts.query.at("blkid")) * range.bytes);
      BOOST_TEST(std::to_string(range.bytes) == parts.query.at("size"));
      BOOST_TEST(range.offset <= (1ULL << 63U) - range.bytes);
      BOOST_TEST(range.path.starts_with(writer.folder(77) + "/"));
    }
    BOOST_TEST(writer.folder(77) == "a%20b/000000000000004d");
  }
}

BOOST_AUTO_TEST_CASE(no_name_leaves_the_root) {
  for (const std::string& instance : hostile_names()) {
    for (const std::string& spec : hostile_names()) {
      uri_place place = plain_place;
      place.instance = instance;
      place.spec = spec;
      const uri_writer writer(place);
      const file_range range = writer.part(3, 9);
      const auto path = components(range.path);
      BOOST_REQUIRE(path.size() == 3U);
      for (const std::string& component : path) {
        BOOST_TEST((!component.empty() && component != "." && component != ".." && component.size() <= 255));
        BOOST_TEST(component.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%~.") ==
                   std::string::npos);
      }
      BOOST_TEST(split(uri_of(writer, 3, 9)).path == "/mnt/kv/" + range.path);
      if (path[0].find('~') == std::string::npos) BOOST_TEST(decoded(path[0]) == instance);
    }
  }
}

BOOST_AUTO_TEST_CASE(names_that_differ_never_share_a_file) {
  std::set<std::string> paths;
  std::size_t count = 0;
  std::vector<std::string> names = hostile_names();
  for (const char* name : {"tp0", "tp0.1", "tp0.0", "tp0%2E1", "TP0", "tp"}) names.emplace_back(name);
  std::set<std::string> distinct(names.begin(), names.end());
  for (const std::string& spec : distinct) {
    uri_place place = plain_place;
    place.blocks_per_file = 1;
    place.spec = spec;
    const uri_writer writer(place);
    for (std::uint32_t position = 0; position < 12; ++position, ++count) paths.insert(writer.part(1, position).path);
  }
  BOOST_TEST(paths.size() == count);
}

BOOST_AUTO_TEST_CASE(long_names_are_shortened_and_stay_different) {
  std::string first;
  std::string second;
  append_path_name(std::string(200, '.') + "a", first);
  append_path_name(std::string(200, '.') + "b", second);
  BOOST_TEST(first != second);
  BOOST_TEST(first.size() <= longest_path_name);
  BOOST_TEST(first.find('~') != std::string::npos);
  BOOST_TEST(decoded(first.substr(0, first.find('~'))) == std::string(60, '.'));
  std::string plain;
  append_path_name(std::string(200, 'a'), plain);
  BOOST_TEST(plain == std::string(200, 'a'));
}

BOOST_AUTO_TEST_CASE(a_storage_is_the_authority_and_keeps_its_points) {
  uri_place place = plain_place;
  place.storage = "nfs.01_a-b~";
  BOOST_TEST(split(uri_of(uri_writer(place), 1, 0)).authority == "nfs.01_a-b~");
  place.storage = "a@b:1?x#[/]";
  const uri_parts parts = split(uri_of(uri_writer(place), 1, 0));
  BOOST_TEST(parts.authority == "a%40b%3A1%3Fx%23%5B%2F%5D");
  BOOST_TEST(parts.path == "/mnt/kv/i/0000000000000001/tp0");
}

BOOST_AUTO_TEST_CASE(random_addresses_fit_their_bound_and_read_back) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string instance(random() % 256, '\0');
    for (char& c : instance) c = static_cast<char>(random());
    uri_place place{.type = round % 2 == 0 ? storage_type::nfs : storage_type::redis,
                    .storage = "s",
                    .root = round % 2 == 0 ? std::string_view("/r") : std::string_view(),
                    .blocks_per_file = static_cast<std::uint32_t>(random() % 32768),
                    .instance = instance,
                    .spec = "tp",
                    .spec_bytes = random() >> (random() % 64)};
    const uri_writer writer(place);
    const std::uint64_t extent = random();
    const auto position = static_cast<std::uint32_t>(random() % 65536);
    const uri_parts parts = split(uri_of(writer, extent, position));
    BOOST_TEST(parts.query.at("size") == std::to_string(place.spec_bytes));
    const auto path = components(std::string_view(parts.path).substr(1));
    std::uint64_t number = 0;
    const std::string& digits = path[place.root.empty() ? 1 : 2];
    std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
    BOOST_TEST(number == extent);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
