// Locations written by hand, beside the same answer as a message.
#include "services/manager/service/location_text.hpp"

#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "transport/manager/answer_code.hpp"
#include "transport/manager/message_json.hpp"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace proto = ::kv_cache_manager::proto;

using response = proto::meta::GetCacheLocationResponse;

instance_terms instance_of(const std::vector<std::string>& specs) {
  instance_terms terms{.id = "an instance/1", .number = 1, .group = "g"};
  for (const std::string& name : specs) terms.specs.push_back({.name = name, .bytes = 4'096 + terms.specs.size()});
  terms.all_specs = specs.size() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << specs.size()) - 1;
  return terms;
}

const storage_terms nfs{.name = "s 1", .root = "/mnt/kv", .blocks_per_file = 8};
const storage_terms threefs{.name = "t1", .number = 1, .type = storage_type::threefs, .root = "/3fs"};
const storage_terms mooncake{.name = "m1", .number = 3, .type = storage_type::mooncake};
const storage_terms redis{.name = "r1", .number = 2, .type = storage_type::redis};

/// A location as a test wants it: its parts have texts, or are absent, all of them.
struct wanted_location {
  std::vector<location_part> parts{};

  [[nodiscard]] bool is_absent() const noexcept { return parts.empty() || parts.front().texts == nullptr; }
};

/// The same as a message.
response message_of(const instance_terms& instance, const std::vector<wanted_location>& locations,
                    const std::string& message) {
  response answer;
  answer.mutable_header()->mutable_status()->set_code(proto::OK);
  answer.mutable_header()->mutable_status()->set_message(message);
  answer.mutable_header()->set_request_id("0123456789abcdef");
  for (const wanted_location& wanted : locations) {
    auto& location = *answer.add_locations();
    if (!wanted.parts.empty() && wanted.parts.front().texts != nullptr) {
      location.set_type(static_cast<proto::StorageType>(wanted.parts.front().texts->type()));
    }
    for (const location_part& part : wanted.parts) {
      for (std::uint64_t specs = part.specs; specs != 0; specs &= specs - 1) {
        const auto number = static_cast<std::size_t>(std::countr_zero(specs));
        auto& spec = *location.add_location_specs();
        spec.set_name(instance.specs[number].name);
        spec.set_checksum(checksum_at(part.checksums, number));
        if (part.texts != nullptr) (*part.texts)[number].uri.append(part.block, *spec.mutable_uri());
      }
    }
    location.set_spec_size(location.location_specs_size());
  }
  return answer;
}

std::string written(answer_form form, const instance_terms& instance, const std::vector<wanted_location>& locations,
                    std::string_view message) {
  std::string out;
  append_header(form, static_cast<std::uint16_t>(answer_code::ok), message, "0123456789abcdef", out);
  location_list list(form, response::kLocationsFieldNumber, "locations", instance, out);
  for (const wanted_location& wanted : locations) {
    if (!wanted.is_absent()) {
      list.add(wanted.parts);
      continue;
    }
    list.add_absent(wanted.parts.empty() ? 0 : wanted.parts.front().specs, 1);
  }
  list.end();
  append_end(form, out);
  return out;
}

void check_same(const instance_terms& instance, const std::vector<wanted_location>& locations,
                const std::string& message) {
  const response right = message_of(instance, locations, message);
  BOOST_TEST((written(answer_form::wire, instance, locations, message) == right.SerializeAsString()));
  const std::string json = written(answer_form::json, instance, locations, message);
  response read;
  BOOST_TEST_REQUIRE(read_json(json, read).has_value(), json);
  BOOST_TEST((read.SerializeAsString() == right.SerializeAsString()), json);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(texts_of_locations)

BOOST_AUTO_TEST_CASE(an_answer_is_byte_for_byte_what_its_message_would_be) {
  const instance_terms instance = instance_of({"tp0", "tp1"});
  const storage_texts files(instance, nfs), others(instance, threefs), keys(instance, redis),
      objects(instance, mooncake);
  const std::vector<wanted_location> locations{
      {.parts = {{.texts = &files, .block = {.extent = 0x1'0000'0002, .position = 12}, .specs = 3}}},
      {},
      {.parts = {{.texts = &others, .block = {.extent = 7}, .specs = 1},
                 {.texts = &keys, .block = {.extent = 8, .position = 9}, .specs = 2}}},
      {.parts = {{.specs = 3}}},
      {.parts = {{.texts = &files, .block = {.extent = ~std::uint64_t{0}, .position = 65'535}, .specs = 2}}},
      {.parts = {{.texts = &objects, .block = {.extent = 3, .key_low = 0xabc}, .specs = 1},
                 {.texts = &objects, .block = {.extent = 4, .key_low = ~std::uint64_t{0}, .key_high = 1}, .specs = 2}}},
  };
  check_same(instance, locations, "");
  check_same(instance, {}, "a note");
  std::string json;
  response right = message_of(instance, locations, "");
  right.mutable_header()->clear_status();
  right.mutable_header()->mutable_status()->set_code(proto::OK);
  write_json(right, json);
  // Lists that the hand does not write are empty in the message.
  const std::string by_hand = written(answer_form::json, instance, locations, "");
  BOOST_TEST(json.starts_with(by_hand.substr(0, by_hand.size() - 1)), json << "\n" << by_hand);
}

BOOST_AUTO_TEST_CASE(checksums_stand_beside_their_specs) {
  const instance_terms instance = instance_of({"a", "b", "c"});
  const storage_texts files(instance, nfs);
  const std::array<std::uint64_t, 3> some{0b101, ~std::uint64_t{0}, 7};
  const std::array<std::uint64_t, 2> none{0b10, 0};
  BOOST_TEST(checksum_at(some.data(), 0) == ~std::uint64_t{0});
  BOOST_TEST(checksum_at(some.data(), 1) == 0U);
  BOOST_TEST(checksum_at(some.data(), 2) == 7U);
  BOOST_TEST(checksum_at(nullptr, 2) == 0U);
  check_same(instance,
             {{.parts = {{.texts = &files, .block = {.extent = 1}, .specs = 7, .checksums = some.data()}}},
              {.parts = {{.texts = &files, .block = {.extent = 2}, .specs = 2, .checksums = none.data()}}},
              {.parts = {{.specs = 7}}}},
             "");
}

BOOST_AUTO_TEST_CASE(sixty_four_specs_come_in_their_order) {
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back("spec_" + std::to_string(i));
  const instance_terms instance = instance_of(names);
  const storage_texts files(instance, nfs);
  check_same(instance, {{.parts = {{.texts = &files, .block = {.extent = 1}, .specs = ~std::uint64_t{0}}}}}, "");
}

BOOST_AUTO_TEST_CASE(names_and_messages_with_any_characters_come_through) {
  std::string ascii;
  for (char letter = 1; letter < 127; ++letter) ascii += letter;
  const std::vector<std::string> names{"quote\"back\\slash", "</script>",          "\x7f",
                                       "größe ☃ 𝄞",          "\u2028\u2029\ufeff", ascii};
  const instance_terms instance = instance_of(names);
  const storage_texts files(instance, nfs);
  for (const std::string& message : names) {
    check_same(instance,
               {{.parts = {{.texts = &files, .block = {.extent = 1}, .specs = instance.all_specs}}},
                {.parts = {{.specs = instance.all_specs}}}},
               message);
  }
}

BOOST_AUTO_TEST_CASE(blocks_side_by_side_are_those_of_their_messages) {
  const instance_terms instance = instance_of({"a", "longer", "c"});
  storage_terms whole = nfs, most = nfs;
  whole.blocks_per_file = 1;
  most.blocks_per_file = 1'000;
  for (const storage_terms& storage : {nfs, whole, most, threefs, redis, mooncake}) {
    const storage_texts texts(instance, storage);
    std::vector<wanted_location> locations;
    for (const std::uint32_t first : {0U, 95U, 990U, 9'995U, 65'520U}) {
      for (std::uint32_t i = 0; i < 16; ++i) {
        const std::uint64_t specs = i == 7 ? 2 : 7, extent = i == 11 ? 6 : 5;
        if (i == 13) locations.push_back({.parts = {{.specs = 7}}});
        locations.push_back(
            {.parts = {{.texts = &texts, .block = {.extent = extent, .position = first + i}, .specs = specs}}});
      }
      locations.push_back({.parts = {{.texts = &texts, .block = {.extent = 5, .position = first + 3}, .specs = 7}}});
    }
    check_same(instance, locations, "");
  }
}

BOOST_AUTO_TEST_CASE(random_answers_are_those_of_their_messages) {
  const instance_terms instance = instance_of({"a", "b", "c", "d", "e"});
  const storage_texts files(instance, nfs), others(instance, threefs), keys(instance, redis),
      objects(instance, mooncake);
  const std::array<const storage_texts*, 4> all{&files, &others, &keys, &objects};
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<wanted_location> locations(random() % 6);
    for (wanted_location& location : locations) {
      std::uint64_t rest = random() & instance.all_specs;
      if (random() % 4 == 0) {
        location.parts.push_back({.specs = rest});
        continue;
      }
      for (; rest != 0; rest &= random()) {
        const std::uint64_t specs = rest & random();
        rest &= ~specs;
        if (specs == 0) continue;
        location.parts.push_back({.texts = all[random() % all.size()],
                                  .block = {.extent = random() >> (random() % 64),
                                            .position = static_cast<std::uint32_t>(random() % 65'536),
                                            .key_low = random(),
                                            .key_high = random() % 2 == 0 ? random() : 0},
                                  .specs = specs});
      }
    }
    check_same(instance, locations, random() % 2 == 0 ? "" : "text");
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_the_wire_take_seven_bits_a_byte) {
  const auto varint = [](std::uint64_t value) {
    std::string out;
    append_varint(value, out);
    return out;
  };
  BOOST_TEST((varint(0) == std::string(1, '\0') && varint(127) == "\x7f" && varint(128) == "\x80\x01"));
  BOOST_TEST(varint(std::numeric_limits<std::uint64_t>::max()) == std::string(9, '\xff') + "\x01");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
