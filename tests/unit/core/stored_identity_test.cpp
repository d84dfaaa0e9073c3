#include <boost/test/unit_test.hpp>

#include "core/stored_identity.hpp"
#include "tests/support/numbered_identity.hpp"

using namespace cenote;

namespace {

instance_spec spec_of(const char* id) {
  instance_spec spec;
  spec.id = id;
  return spec;
}

full_key key_of(char letter) {
  full_key key;
  key.size = 16;
  key.bytes[0] = static_cast<std::byte>(letter);
  return key;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(stored_identities)

BOOST_AUTO_TEST_CASE(an_instance_is_known_by_all_of_its_spec) {
  instance_spec other = spec_of("one");
  other.fingerprint = "of other weights";
  BOOST_TEST(identity_of(spec_of("one")) == identity_of(spec_of("one")));
  BOOST_TEST(identity_of(spec_of("one")) != identity_of(spec_of("two")));
  BOOST_TEST(identity_of(spec_of("one")) != identity_of(other));
}

BOOST_AUTO_TEST_CASE(an_identity_is_the_sha256_of_what_the_spec_is_written_as) {
  // FIPS 180-4, example of one block.
  BOOST_TEST(identity_text(identity_of_bytes(std::as_bytes(std::span("abc", 3)))) ==
             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  byte_writer text;
  encode(text, spec_of("one"));
  BOOST_TEST(identity_of(spec_of("one")) == identity_of_bytes(text.bytes()));
}

BOOST_AUTO_TEST_CASE(a_bound_checksum_is_of_one_block_alone) {
  const auto bound = bind_checksum(1, 2_identity, 3, key_of('a'));
  BOOST_TEST(bind_checksum(1, 2_identity, 3, key_of('a')) == bound);
  BOOST_TEST(bind_checksum(9, 2_identity, 3, key_of('a')) != bound);
  BOOST_TEST(bind_checksum(1, 9_identity, 3, key_of('a')) != bound);
  BOOST_TEST(bind_checksum(1, 2_identity, 9, key_of('a')) != bound);
  BOOST_TEST(bind_checksum(1, 2_identity, 3, key_of('b')) != bound);
}

BOOST_AUTO_TEST_SUITE_END()
