#include "core/units.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>

using cenote::error_code;
using std::chrono::nanoseconds;

namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = kib * kib;
constexpr std::uint64_t gib = kib * mib;

std::uint64_t bytes(std::string_view text) {
  const auto parsed = cenote::parse_bytes(text);
  BOOST_REQUIRE_MESSAGE(parsed, text << ": " << (parsed ? "" : parsed.error().message()));
  return *parsed;
}

std::int64_t nanos(std::string_view text) {
  const auto parsed = cenote::parse_duration(text);
  BOOST_REQUIRE_MESSAGE(parsed, text << ": " << (parsed ? "" : parsed.error().message()));
  return parsed->count();
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Both are refused with invalid_argument and a message that has `part` in it.
template <class T>
void refused(const cenote::result<T>& parsed, std::string_view part) {
  BOOST_REQUIRE(!parsed);
  BOOST_TEST((parsed.error().code() == error_code::invalid_argument));
  BOOST_TEST(contains(parsed.error().message(), part), parsed.error().message());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(units)

BOOST_AUTO_TEST_CASE(sizes_have_units_of_1024_and_of_1000) {
  BOOST_TEST(bytes("4GiB") == 4 * gib);
  BOOST_TEST(bytes("512MiB") == 512 * mib);
  BOOST_TEST(bytes("64KiB") == 64 * kib);
  BOOST_TEST(bytes("2TiB") == 2 * kib * gib);
  BOOST_TEST(bytes("1PiB") == kib * kib * gib);
  BOOST_TEST(bytes("1GB") == 1'000'000'000U);
  BOOST_TEST(bytes("3kB") == 3000U);
  BOOST_TEST(bytes("3KB") == 3000U);
  BOOST_TEST(bytes("17B") == 17U);
}

BOOST_AUTO_TEST_CASE(a_plain_number_is_bytes) {
  BOOST_TEST(bytes("4096") == 4096U);
  BOOST_TEST(bytes("0") == 0U);
  BOOST_TEST(bytes("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
}

BOOST_AUTO_TEST_CASE(spaces_around_number_and_unit_do_not_matter) {
  BOOST_TEST(bytes("  4 GiB ") == 4 * gib);
  BOOST_TEST(nanos(" 1 s ") == 1'000'000'000);
}

BOOST_AUTO_TEST_CASE(a_fraction_of_a_unit_is_exact_or_rounded_down) {
  BOOST_TEST(bytes("1.5GiB") == gib + gib / 2);
  BOOST_TEST(bytes("0.25KiB") == 256U);
  BOOST_TEST(bytes("0.1KiB") == 102U);
  BOOST_TEST(bytes("1.999999999PiB") == 2'251'799'812'559'348U);
  BOOST_TEST(nanos("1.5s") == 1'500'000'000);
}

BOOST_AUTO_TEST_CASE(a_fraction_of_a_byte_is_refused) {
  refused(cenote::parse_bytes("1.5"), "fraction of the smallest unit");
  refused(cenote::parse_bytes("1.5B"), "fraction of the smallest unit");
  refused(cenote::parse_bytes("0.0001KiB"), "less than the smallest unit");
  refused(cenote::parse_duration("0.5ns"), "fraction of the smallest unit");
}

BOOST_AUTO_TEST_CASE(a_negative_size_or_duration_is_refused) {
  refused(cenote::parse_bytes("-4GiB"), "`-4GiB` is negative; write a size such as \"4GiB\"");
  refused(cenote::parse_duration("-1s"), "`-1s` is negative; write a duration such as \"250ms\"");
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  refused(cenote::parse_bytes("18446744073709551616"), "too large for a size");
  refused(cenote::parse_bytes("16384PiB"), "too large for a size");
  BOOST_TEST(bytes("16383PiB") == 16383 * kib * kib * gib);
  refused(cenote::parse_bytes("99999999999999999999999GiB"), "too large for a size");
  refused(cenote::parse_duration("106752d"), "too large for a duration");
  BOOST_TEST(nanos("9223372036854775807ns") == std::numeric_limits<std::int64_t>::max());
  refused(cenote::parse_duration("9223372036854775808ns"), "too large for a duration");
}

BOOST_AUTO_TEST_CASE(an_unknown_unit_is_refused_with_the_likely_one) {
  refused(cenote::parse_bytes("4gib"), "unknown unit `gib` in `4gib`; did you mean `GiB`?");
  refused(cenote::parse_bytes("4G"), "did you mean `GiB`?");
  refused(cenote::parse_bytes("4 apples"), "Units of a size are B, KiB, MiB");
  refused(cenote::parse_duration("4S"), "did you mean `s`?");
  refused(cenote::parse_duration("1h30m"), "unknown unit `h30m`");
  refused(cenote::parse_bytes("4GiB extra"), "unknown unit");
}

BOOST_AUTO_TEST_CASE(text_that_is_no_number_is_refused_with_an_example) {
  refused(cenote::parse_bytes(""), "empty; write a size such as \"4GiB\"");
  refused(cenote::parse_bytes("   "), "empty");
  refused(cenote::parse_bytes("GiB"), "`GiB` is not a number with a unit");
  refused(cenote::parse_bytes("+4GiB"), "not a number");
  refused(cenote::parse_bytes("1.GiB"), "digits after the point");
  refused(cenote::parse_bytes("1.0000000001GiB"), "one to nine digits");
  refused(cenote::parse_bytes("1e9"), "unknown unit `e9`");
  refused(cenote::parse_duration("nan"), "not a number");
}

BOOST_AUTO_TEST_CASE(durations_have_units) {
  BOOST_TEST(nanos("7ns") == 7);
  BOOST_TEST(nanos("10us") == 10'000);
  BOOST_TEST(nanos("250ms") == 250'000'000);
  BOOST_TEST(nanos("1s") == 1'000'000'000);
  BOOST_TEST(nanos("2m") == 120'000'000'000);
  BOOST_TEST(nanos("1h") == 3'600'000'000'000);
  BOOST_TEST(nanos("1d") == 86'400'000'000'000);
}

BOOST_AUTO_TEST_CASE(a_duration_without_a_unit_is_refused_unless_it_is_zero) {
  BOOST_TEST(nanos("0") == 0);
  refused(cenote::parse_duration("250"), "`250` has no unit; write it with one of ns, us, ms, s, m, h or d");
}

BOOST_AUTO_TEST_CASE(exact_sizes_and_durations_read_back_as_they_were) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000}, kib, 1536 * kib, 3 * gib,
                                   std::numeric_limits<std::uint64_t>::max()}) {
    BOOST_TEST(bytes(cenote::format_bytes(size)) == size);
  }
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{90'000'000'000}, std::numeric_limits<std::int64_t>::max()}) {
    BOOST_TEST(nanos(cenote::format_duration(nanoseconds(count))) == count);
  }
}

BOOST_AUTO_TEST_CASE(exact_texts_use_the_largest_unit_that_divides) {
  BOOST_TEST(cenote::format_bytes(4 * gib) == "4GiB");
  BOOST_TEST(cenote::format_bytes(1536 * kib) == "1536KiB");
  BOOST_TEST(cenote::format_bytes(1000) == "1000B");
  BOOST_TEST(cenote::format_bytes(0) == "0");
  BOOST_TEST(cenote::format_duration(nanoseconds(90'000'000'000)) == "90s");
  BOOST_TEST(cenote::format_duration(nanoseconds(120'000'000'000)) == "2m");
  BOOST_TEST(cenote::format_duration(nanoseconds(0)) == "0s");
  BOOST_TEST(cenote::format_duration(nanoseconds(-250'000'000)) == "-250ms");
  BOOST_TEST(cenote::format_duration(nanoseconds::min()) == "-9223372036854775808ns");
}

BOOST_AUTO_TEST_CASE(texts_for_people_are_rounded_to_one_decimal) {
  BOOST_TEST(cenote::approximate_bytes(0) == "0 B");
  BOOST_TEST(cenote::approximate_bytes(812) == "812 B");
  BOOST_TEST(cenote::approximate_bytes(gib + gib / 2) == "1.5 GiB");
  BOOST_TEST(cenote::approximate_duration(nanoseconds(1'234'567)) == "1.2 ms");
  BOOST_TEST(cenote::approximate_duration(nanoseconds(3'400'000'000)) == "3.4 s");
  BOOST_TEST(cenote::approximate_duration(nanoseconds(0)) == "0 s");
}

BOOST_AUTO_TEST_SUITE_END()
