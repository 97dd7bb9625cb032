//! Bits of the low word of PHY types. Source: ice `ICE_PHY_TYPE_LOW_*`.

macro_rules! phy_types {
    ($( $(#[$outer:meta])* $name:ident $c_name:literal = $bit:literal; )*) => {
        $(
            $(#[$outer])*
            #[doc = concat!("(`ICE_PHY_TYPE_LOW_", $c_name, "`)")]
            pub const $name: u64 = 1 << $bit;
        )*

        /// Every type: its bit and the end of its C name.
        pub const ALL: &[(u64, &str)] = &[ $( ($name, $c_name) ),* ];
    };
}

phy_types! {
    /// 100 Mb/s, TX
    BASE_100M_TX "100BASE_TX" = 0;
    /// 100 Mb/s, SGMII interface
    INTERFACE_100M_SGMII "100M_SGMII" = 1;
    /// 1000 Mb/s, T
    BASE_1000M_T "1000BASE_T" = 2;
    /// 1000 Mb/s, SX
    BASE_1000M_SX "1000BASE_SX" = 3;
    /// 1000 Mb/s, LX
    BASE_1000M_LX "1000BASE_LX" = 4;
    /// 1000 Mb/s, KX
    BASE_1000M_KX "1000BASE_KX" = 5;
    /// 1 Gb/s, SGMII interface
    INTERFACE_1G_SGMII "1G_SGMII" = 6;
    /// 2500 Mb/s, T
    BASE_2500M_T "2500BASE_T" = 7;
    /// 2500 Mb/s, X
    BASE_2500M_X "2500BASE_X" = 8;
    /// 2500 Mb/s, KX
    BASE_2500M_KX "2500BASE_KX" = 9;
    /// 5 Gb/s, T
    BASE_5G_T "5GBASE_T" = 10;
    /// 5 Gb/s, KR
    BASE_5G_KR "5GBASE_KR" = 11;
    /// 10 Gb/s, T
    BASE_10G_T "10GBASE_T" = 12;
    /// 10 Gb/s, SFI DA interface
    INTERFACE_10G_SFI_DA "10G_SFI_DA" = 13;
    /// 10 Gb/s, SR
    BASE_10G_SR "10GBASE_SR" = 14;
    /// 10 Gb/s, LR
    BASE_10G_LR "10GBASE_LR" = 15;
    /// 10 Gb/s, KR-CR1
    BASE_10G_KR_CR1 "10GBASE_KR_CR1" = 16;
    /// 10 Gb/s, SFI AOC ACC interface
    INTERFACE_10G_SFI_AOC_ACC "10G_SFI_AOC_ACC" = 17;
    /// 10 Gb/s, SFI C2C interface
    INTERFACE_10G_SFI_C2C "10G_SFI_C2C" = 18;
    /// 25 Gb/s, T
    BASE_25G_T "25GBASE_T" = 19;
    /// 25 Gb/s, CR
    BASE_25G_CR "25GBASE_CR" = 20;
    /// 25 Gb/s, CR-S
    BASE_25G_CR_S "25GBASE_CR_S" = 21;
    /// 25 Gb/s, CR1
    BASE_25G_CR1 "25GBASE_CR1" = 22;
    /// 25 Gb/s, SR
    BASE_25G_SR "25GBASE_SR" = 23;
    /// 25 Gb/s, LR
    BASE_25G_LR "25GBASE_LR" = 24;
    /// 25 Gb/s, KR
    BASE_25G_KR "25GBASE_KR" = 25;
    /// 25 Gb/s, KR-S
    BASE_25G_KR_S "25GBASE_KR_S" = 26;
    /// 25 Gb/s, KR1
    BASE_25G_KR1 "25GBASE_KR1" = 27;
    /// 25 Gb/s, AUI AOC ACC interface
    INTERFACE_25G_AUI_AOC_ACC "25G_AUI_AOC_ACC" = 28;
    /// 25 Gb/s, AUI C2C interface
    INTERFACE_25G_AUI_C2C "25G_AUI_C2C" = 29;
    /// 40 Gb/s, CR4
    BASE_40G_CR4 "40GBASE_CR4" = 30;
    /// 40 Gb/s, SR4
    BASE_40G_SR4 "40GBASE_SR4" = 31;
    /// 40 Gb/s, LR4
    BASE_40G_LR4 "40GBASE_LR4" = 32;
    /// 40 Gb/s, KR4
    BASE_40G_KR4 "40GBASE_KR4" = 33;
    /// 40 Gb/s, XLAUI AOC ACC interface
    INTERFACE_40G_XLAUI_AOC_ACC "40G_XLAUI_AOC_ACC" = 34;
    /// 40 Gb/s, XLAUI interface
    INTERFACE_40G_XLAUI "40G_XLAUI" = 35;
    /// 50 Gb/s, CR2
    BASE_50G_CR2 "50GBASE_CR2" = 36;
    /// 50 Gb/s, SR2
    BASE_50G_SR2 "50GBASE_SR2" = 37;
    /// 50 Gb/s, LR2
    BASE_50G_LR2 "50GBASE_LR2" = 38;
    /// 50 Gb/s, KR2
    BASE_50G_KR2 "50GBASE_KR2" = 39;
    /// 50 Gb/s, LAUI2 AOC ACC interface
    INTERFACE_50G_LAUI2_AOC_ACC "50G_LAUI2_AOC_ACC" = 40;
    /// 50 Gb/s, LAUI2 interface
    INTERFACE_50G_LAUI2 "50G_LAUI2" = 41;
    /// 50 Gb/s, AUI2 AOC ACC interface
    INTERFACE_50G_AUI2_AOC_ACC "50G_AUI2_AOC_ACC" = 42;
    /// 50 Gb/s, AUI2 interface
    INTERFACE_50G_AUI2 "50G_AUI2" = 43;
    /// 50 Gb/s, CP
    BASE_50G_CP "50GBASE_CP" = 44;
    /// 50 Gb/s, SR
    BASE_50G_SR "50GBASE_SR" = 45;
    /// 50 Gb/s, FR
    BASE_50G_FR "50GBASE_FR" = 46;
    /// 50 Gb/s, LR
    BASE_50G_LR "50GBASE_LR" = 47;
    /// 50 Gb/s, KR-PAM4
    BASE_50G_KR_PAM4 "50GBASE_KR_PAM4" = 48;
    /// 50 Gb/s, AUI1 AOC ACC interface
    INTERFACE_50G_AUI1_AOC_ACC "50G_AUI1_AOC_ACC" = 49;
    /// 50 Gb/s, AUI1 interface
    INTERFACE_50G_AUI1 "50G_AUI1" = 50;
    /// 100 Gb/s, CR4
    BASE_100G_CR4 "100GBASE_CR4" = 51;
    /// 100 Gb/s, SR4
    BASE_100G_SR4 "100GBASE_SR4" = 52;
    /// 100 Gb/s, LR4
    BASE_100G_LR4 "100GBASE_LR4" = 53;
    /// 100 Gb/s, KR4
    BASE_100G_KR4 "100GBASE_KR4" = 54;
    /// 100 Gb/s, CAUI4 AOC ACC interface
    INTERFACE_100G_CAUI4_AOC_ACC "100G_CAUI4_AOC_ACC" = 55;
    /// 100 Gb/s, CAUI4 interface
    INTERFACE_100G_CAUI4 "100G_CAUI4" = 56;
    /// 100 Gb/s, AUI4 AOC ACC interface
    INTERFACE_100G_AUI4_AOC_ACC "100G_AUI4_AOC_ACC" = 57;
    /// 100 Gb/s, AUI4 interface
    INTERFACE_100G_AUI4 "100G_AUI4" = 58;
    /// 100 Gb/s, CR-PAM4
    BASE_100G_CR_PAM4 "100GBASE_CR_PAM4" = 59;
    /// 100 Gb/s, KR-PAM4
    BASE_100G_KR_PAM4 "100GBASE_KR_PAM4" = 60;
    /// 100 Gb/s, CP2
    BASE_100G_CP2 "100GBASE_CP2" = 61;
    /// 100 Gb/s, SR2
    BASE_100G_SR2 "100GBASE_SR2" = 62;
    /// 100 Gb/s, DR
    BASE_100G_DR "100GBASE_DR" = 63;
}

/// The end of the C name of the type, if exactly one bit is set in both words and it is known.
#[must_use]
pub fn name_of(low: u64, high: u64) -> Option<&'static str> {
    let same_bit = |entry: &&(u64, &'static str)| high == 0 && entry.0 == low;
    ALL.iter().find(same_bit).map(|(_, name)| *name)
}
