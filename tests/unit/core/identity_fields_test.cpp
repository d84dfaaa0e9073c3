// Every field of what names an instance, and of what is named within one, makes another name: also one that comes
// later.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <map>
#include <string>

#include "core/handover.hpp"
#include "core/instance_spec.hpp"
#include "core/stored_identity.hpp"
#include "tests/support/aggregate_fields.hpp"
#include "tests/support/spec_changes.hpp"

namespace cenote::identity_fields_test {

namespace {

using testing::changes_of;
using testing::field_count;
using testing::spec_changes;

instance_spec plain_spec() {
  instance_spec spec;
  spec.id = "instance";
  spec.tokens_per_block = 16;
  spec.groups = {{.name = "default", .parts = {{.name = "kv", .bytes = 4096}, {.name = "more", .bytes = 4096}}}};
  return spec;
}

const changes_of<group_spec> group_changes{
    {"name", [](auto& group) { group.name = "other"; }},
    {"parts", [](auto& group) { group.parts.pop_back(); }},
};
const changes_of<part_spec> part_changes{
    {"name", [](auto& part) { part.name = "other"; }},
    {"bytes", [](auto& part) { part.bytes *= 2; }},
};

/// The changes of a part of the spec that `reach` finds, each on a spec of its own.
template <class T, class Reach>
void check_changes(const changes_of<T>& changes, Reach&& reach) {
  BOOST_TEST(changes.size() == field_count<T>(), "a field without a change in this test");
  for (const auto& [field, change] : changes) {
    instance_spec spec = plain_spec();
    change(reach(spec));
    BOOST_REQUIRE(validate(spec).has_value());
    BOOST_TEST((identity_of(spec) != identity_of(plain_spec())), field);
    byte_writer bytes;
    encode(bytes, spec);
    byte_reader reader(bytes.bytes());
    const auto again = decode_instance_spec(reader);
    BOOST_TEST((again && *again == spec), field);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(identity_fields)

BOOST_AUTO_TEST_CASE(each_field_of_a_spec_makes_another_instance_and_is_kept_in_its_encoding) {
  check_changes<instance_spec>(spec_changes, [](instance_spec& spec) -> auto& { return spec; });
  check_changes<group_spec>(group_changes, [](instance_spec& spec) -> auto& { return spec.groups.front(); });
  check_changes<part_spec>(part_changes,
                           [](instance_spec& spec) -> auto& { return spec.groups.front().parts.front(); });
}

BOOST_AUTO_TEST_CASE(each_field_of_a_hand_overs_name_makes_another_one) {
  const handover::request_name plain{.identity = identity_of(plain_spec()), .group = 0, .text = "request"};
  instance_spec other = plain_spec();
  other.id = "other";
  const changes_of<handover::request_name> changes{
      {"identity", [&](auto& name) { name.identity = identity_of(other); }},
      {"group", [](auto& name) { name.group = 1; }},
      {"text", [](auto& name) { name.text = "other"; }},
  };
  BOOST_TEST(changes.size() == field_count<handover::request_name>());
  for (const auto& [field, change] : changes) {
    handover::request_name changed = plain;
    change(changed);
    BOOST_TEST((changed != plain), field);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::identity_fields_test
